"""Where FlashAttention-4's source comes from: the layout of a tree, and the published sdists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import GET_NEWER, IncompatibleError, UsageError
from flashdepot.kernels.fa4.units import units
from flashdepot.model.selection import Feature, Unit
from flashdepot.upstream.source import Sdist, read_sdists, version_in

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles


KERNELS = "flash_fwd_sm90.py"
"""A module that every tree has."""

FEATURES = frozenset({Feature.SOFTCAP, Feature.LOCAL, Feature.UNEVEN_K})
"""What kernels are there for; head dims between the units' are in all of them."""

_DSL = r"""(?m)(?:^Requires-Dist: |["'])nvidia-cutlass-dsl(?:\[\w+\])?[ (]*([<>=!~][^;"')\n]*)"""
"""What a source wants of CuTe DSL, in the metadata of an sdist or in the pyproject.toml of a clone."""


class Fa4Layout:
    """The tree of the sdist, and the folder ``flash_attn/cute`` of upstream's repository."""

    project = "flash-attn-4"
    kept: tuple[str, ...] = (".",)
    """All of it: 60 files."""
    submodules: tuple[str, ...] = ()

    def require_complete(self, files: PlainFiles) -> None:
        """Check that a folder holds the modules of the kernels."""
        if not files.has(KERNELS):
            raise UsageError(
                f"{files.root} is not a source tree of FlashAttention-4: it has no {KERNELS}.",
                hint="Name the folder flash_attn/cute of a clone, or use the published version.",
            )
        _require_dsl(files)

    def units(self, files: PlainFiles) -> frozenset[Unit]:  # noqa: ARG002  (each version that is known has them all)
        """Every kernel that the compile worker knows."""
        return units()

    def features(self, files: PlainFiles) -> frozenset[Feature]:  # noqa: ARG002
        """What kernels are there for."""
        return FEATURES

    def version(self, files: PlainFiles) -> str:
        """Read the version from the sdist's ``PKG-INFO``; ``unknown`` for another tree."""
        return version_in(files)

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """Every module."""
        return (name for name in files.below("") if name.endswith(".py") and "/" not in name)


def _require_dsl(files: PlainFiles) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415  (published sources ask nothing)

    from flashdepot.toolchain.wheels import dsl_version  # noqa: PLC0415

    text = "\n".join(files.text(name) for name in ("PKG-INFO", "pyproject.toml"))
    match = re.search(_DSL, text)
    if not match:
        return
    wanted, provided = match[1].strip(), str(dsl_version())
    try:
        fits = SpecifierSet(wanted).contains(provided, prereleases=True)
    except InvalidSpecifier:
        return
    if not fits:
        raise IncompatibleError(
            f"{files.root} is written for CuTe DSL {wanted}, and flashdepot compiles FlashAttention-4 with CuTe DSL {provided}.",
            hint=f"Leave out --upstream to compile the published version, or get a newer flashdepot: {GET_NEWER}",
        )


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    return read_sdists(Path(__file__).with_name("sdists.toml"), units(), FEATURES)
