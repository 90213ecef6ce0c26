"""Where FlashAttention-2's source comes from: the layout of a tree, its licences, and the published sdists."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.facts import read_table
from flashdepot.kernels.fa2.units import make_unit, parse_unit
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.upstream.source import UNKNOWN_VERSION, Sdist

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles


_C_DIR = "csrc/flash_attn"
SOURCE_DIR = f"{_C_DIR}/src"
CUTLASS_DIR = "csrc/cutlass"
CUTLASS_INCLUDE = f"{CUTLASS_DIR}/include"

_CUTLASS_HEADERS = ("cutlass/numeric_types.h", "cute/tensor.hpp")
_FEATURE_SWITCH = r"\bFLASHATTENTION_DISABLE_(\w+)"
_VERSION = r"""(?m)^__version__\s*=\s*["'](\d[\w.+!-]*)["']"""


class Fa2Layout:
    """The tree of the sdist, of a folder and of a commit alike."""

    project = "flash-attn"
    kept = (
        "csrc/flash_attn",
        CUTLASS_INCLUDE,
        f"{CUTLASS_DIR}/LICENSE.txt",
        "flash_attn",
        "tests",
        "setup.py",
        "LICENSE",
        "AUTHORS",
        "README.md",
        "PKG-INFO",
    )
    """The kernels, the Python package and its tests, and who wrote them."""
    submodules = (CUTLASS_DIR,)

    def require_complete(self, files: PlainFiles) -> None:
        """:raises UsageError: for what is not a tree of flash-attention; :raises MissingToolError: without CUTLASS."""
        if not self.units(files):
            raise UsageError(
                f"{files.root} is not a source tree of flash-attention: it has no translation unit such as "
                f"{SOURCE_DIR}/flash_fwd_hdim64_bf16_sm80.cu.",
                hint="Name the folder that holds csrc/ and setup.py, or a published version: --upstream 2.8.3",
            )
        if missing := [header for header in _CUTLASS_HEADERS if not files.has(f"{CUTLASS_INCLUDE}/{header}")]:
            raise MissingToolError(
                f"{files.root} lacks CUTLASS, which its kernels include: there is no {CUTLASS_INCLUDE}/{missing[0]}. "
                "CUTLASS is a git submodule, and a ZIP download never has submodules.",
                hint="In a git clone: git submodule update --init csrc/cutlass. "
                "Otherwise use a published version, which has it: --upstream 2.8.3",
            )

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        """Read the translation units of a tree from the names of its files."""
        names = (PurePosixPath(name) for name in files.below(SOURCE_DIR))
        of_units = (name.stem for name in names if name.suffix == ".cu" and str(name.parent) == SOURCE_DIR)
        return frozenset(unit for name in of_units if (unit := parse_unit(name)))

    def features(self, files: PlainFiles) -> frozenset[Feature]:
        """Read the features that a tree can leave out from the macros of its ``static_switch.h``."""
        text = files.text(f"{SOURCE_DIR}/static_switch.h")
        macros = {macro.lower() for macro in re.findall(_FEATURE_SWITCH, text)}
        return frozenset(feature for feature in Feature if feature.value in macros)

    def version(self, files: PlainFiles) -> str:
        """Read the version that a tree's Python package gives itself; ``unknown`` where it gives none."""
        match = re.search(_VERSION, files.text("flash_attn/__init__.py"))
        return match[1] if match else UNKNOWN_VERSION

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """The folder of the units, the ``.cpp`` files next to it, CUTLASS's ``include``, and what wheels take."""
        beside = [
            name for name in files.below(_C_DIR) if name.endswith(".cpp") and name.count("/") == _C_DIR.count("/") + 1
        ]
        return (SOURCE_DIR, CUTLASS_INCLUDE, *beside, "flash_attn", "LICENSE", "README.md", "AUTHORS")


DATA = Path(__file__).with_name("sdists.toml")


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    data = read_table(DATA)
    return {entry["version"]: _parse(data["project"], **entry) for entry in data["sdist"]}


def _parse(project: str, *, head_dims: Any, dtypes: list[str], features: list[str], **pinned: Any) -> Sdist:
    kinds = tuple((name, tuple(values)) for name, values in head_dims.items())
    return Sdist(project, units=_units(kinds, tuple(dtypes)), features=frozenset(map(Feature, features)), **pinned)


@cache  # of two versions that follow each other, most have the same
def _units(head_dims: tuple[tuple[str, tuple[int, ...]], ...], dtypes: tuple[str, ...]) -> frozenset[Unit]:
    return frozenset(
        make_unit(Pass(name), head_dim, Dtype(dtype), causal=causal)
        for name, values in head_dims
        for head_dim, dtype, causal in itertools.product(values, dtypes, (False, True))
    )


_FIRST_COMMENT = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)


def licences(files: PlainFiles) -> dict[str, str]:
    """Return the texts of flash-attention and of CUTLASS by project name.

    Both are BSD-3-Clause, whose second condition asks that the text accompanies a binary. A published sdist leaves
    CUTLASS's licence file out; each of its headers begins with the same text.
    """
    if not (own := files.text("LICENSE")):
        raise _without_licence(files, "LICENSE")
    return {"flash-attention": own, "cutlass": files.text(f"{CUTLASS_DIR}/LICENSE.txt") or _of_a_header(files)}


def _of_a_header(files: PlainFiles) -> str:
    header = f"{CUTLASS_INCLUDE}/cutlass/cutlass.h"
    comment = _FIRST_COMMENT.match(files.text(header))
    lines = [re.sub(r"^[ \t]*\*+[ \t]?|\*+$", "", line).rstrip() for line in comment[1].splitlines()] if comment else []
    text = "\n".join(lines).strip() + "\n"
    if "Redistribution" not in text:
        raise _without_licence(files, header)
    return text


def _without_licence(files: PlainFiles, name: str) -> UsageError:
    return UsageError(
        f"{files.root / name} has no licence text, and no binary may be passed on without it.",
        hint="Restore it: git checkout -- LICENSE csrc/cutlass, or use a published version: --upstream 2.8.3",
    )
