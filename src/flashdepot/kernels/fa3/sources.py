"""Where FlashAttention-3's source comes from: the layout of a tree, its licences, and the published sdists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.kernels.fa3.units import FEATURES, units
from flashdepot.model.selection import Feature, Unit
from flashdepot.upstream.source import UNKNOWN_VERSION, Sdist, read_sdists

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles

_ROOT = "third_party/flash-attention"
SOURCE_DIR = f"{_ROOT}/hopper"
UNITS_DIR = f"{SOURCE_DIR}/instantiations"
CUTLASS_DIR = f"{_ROOT}/csrc/cutlass"
CUTLASS_INCLUDE = f"{CUTLASS_DIR}/include"

_HEADERS = (f"{SOURCE_DIR}/flash_fwd_launch_template.h", f"{CUTLASS_INCLUDE}/cute/tensor.hpp")
_VERSION = r"(?m)^Version: (\S+)$"
_LICENCE = Path(__file__).with_name("flash-attention-LICENSE.txt")
"""The text of flash-attention's own repository, which the folder ``hopper`` is a part of and does not repeat."""


class Fa3Layout:
    """The tree of the sdist, which is that of xFormers' repository with its submodules."""

    project = "xformers"
    kept = (SOURCE_DIR, CUTLASS_INCLUDE, f"{CUTLASS_DIR}/LICENSE.txt", "PKG-INFO")
    """The kernels with their tests, and CUTLASS."""
    submodules = (_ROOT, CUTLASS_DIR)

    def require_complete(self, files: PlainFiles) -> None:
        """Check that a folder holds FlashAttention-3's kernels and CUTLASS's headers."""
        kernels, cutlass = _HEADERS
        if not files.has(kernels):
            raise UsageError(
                f"{files.root} is not a source tree that holds FlashAttention-3: it has no {kernels}.",
                hint="Leave --upstream out, for the published source.",
            )
        if not files.has(cutlass):
            raise MissingToolError(
                f"{files.root} lacks CUTLASS, which its kernels include: there is no {cutlass}.",
                hint="In a git clone: git submodule update --init --recursive. Otherwise use the published source.",
            )

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        """Those of :func:`units` that a tree has."""
        return frozenset(unit for unit in units() if files.has(f"{UNITS_DIR}/{unit.name}.cu"))

    def features(self, files: PlainFiles) -> frozenset[Feature]:  # noqa: ARG002  (every tree has them)
        """What is in every unit."""
        return FEATURES

    def version(self, files: PlainFiles) -> str:
        """Read the version of the sdist from its ``PKG-INFO``; ``unknown`` for another tree."""
        match = re.search(_VERSION, files.text("PKG-INFO"))
        return match[1] if match else UNKNOWN_VERSION

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """The folder of the kernels, and CUTLASS."""
        beside = (name for name in files.below(SOURCE_DIR) if name.endswith((".h", ".hpp", ".cu")))
        return (*beside, CUTLASS_INCLUDE)


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    return read_sdists(Path(__file__).with_name("sdists.toml"), units(), FEATURES)


def licences(files: PlainFiles) -> dict[str, str]:
    """The texts of flash-attention and of CUTLASS by project name."""
    cutlass = files.text(f"{CUTLASS_DIR}/LICENSE.txt")
    if not cutlass:
        raise UsageError(
            f"{files.root / CUTLASS_DIR / 'LICENSE.txt'} has no licence text, and no binary may be passed on without it.",
            hint="Restore it, or use the published source.",
        )
    return {"flash-attention-3": _LICENCE.read_text(encoding="utf-8"), "cutlass-of-fa3": cutlass}
