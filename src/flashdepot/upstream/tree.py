"""A source tree of flash-attention: where its parts are, and what it can compile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.model.selection import Feature, Unit
from flashdepot.model.upstream import UpstreamId

SOURCE_DIR = "csrc/flash_attn/src"
CUTLASS_DIR = "csrc/cutlass"
UNKNOWN_VERSION = "unknown"

KEPT = (
    "csrc/flash_attn",
    f"{CUTLASS_DIR}/include",
    f"{CUTLASS_DIR}/LICENSE.txt",
    "flash_attn",
    "tests",
    "setup.py",
    "LICENSE",
    "AUTHORS",
    "README.md",
    "PKG-INFO",
)
"""What flashdepot takes of a tree: the kernels, the Python package and its tests, and who wrote them."""

_CUTLASS_HEADERS = ("cutlass/numeric_types.h", "cute/tensor.hpp")
_FEATURE_SWITCH = re.compile(r"\bFLASHATTENTION_DISABLE_(\w+)")
_VERSION = re.compile(r"""^__version__\s*=\s*["'](\d[\w.+!-]*)["']""", re.MULTILINE)


@dataclass(frozen=True)
class Identified:
    """What is known of an upstream without its tree being unpacked."""

    id: UpstreamId
    units: frozenset[Unit]
    features: frozenset[Feature]


@dataclass(frozen=True)
class SourceTree:
    """A tree on disk, complete. It is read and never written to."""

    id: UpstreamId
    root: Path
    units: frozenset[Unit]
    features: frozenset[Feature]

    @classmethod
    def read(cls, identity: UpstreamId, root: Path) -> SourceTree:
        """Read units and features from the files of a tree.

        :raises UsageError: when it is not a tree of flash-attention.
        :raises MissingToolError: when CUTLASS is not in it.
        """
        require_complete(root)
        return cls(identity, root, read_units(root), read_features(root))

    @property
    def identified(self) -> Identified:
        """The same without the place."""
        return Identified(self.id, self.units, self.features)

    @property
    def source_dir(self) -> Path:
        """The folder of the translation units and their headers."""
        return self.root / SOURCE_DIR

    @property
    def cutlass_include(self) -> Path:
        """The folder that ``#include <cutlass/...>`` and ``<cute/...>`` start from."""
        return self.root / CUTLASS_DIR / "include"


def is_kept(name: str) -> bool:
    """Whether a file of a tree, by its name with ``/``, is one that flashdepot needs."""
    return any(name == kept or name.startswith(f"{kept}/") for kept in KEPT)


def require_complete(root: Path) -> None:
    """Check that a folder holds flash-attention's kernels and CUTLASS's headers.

    :raises UsageError: when it is not a tree of flash-attention.
    :raises MissingToolError: when CUTLASS is not in it.
    """
    if not read_units(root):
        raise UsageError(
            f"{root} is not a source tree of flash-attention: it has no translation unit such as "
            f"{SOURCE_DIR}/flash_fwd_hdim64_bf16_sm80.cu.",
            hint="Name the folder that holds csrc/ and setup.py, or a published version: --upstream 2.8.3",
        )
    include = root / CUTLASS_DIR / "include"
    if missing := [header for header in _CUTLASS_HEADERS if not (include / header).is_file()]:
        raise MissingToolError(
            f"{root} lacks CUTLASS, which its kernels include: there is no {CUTLASS_DIR}/include/{missing[0]}. "
            "CUTLASS is a git submodule, and a ZIP download never has submodules.",
            hint="In a git clone: git submodule update --init csrc/cutlass. "
            "Otherwise use a published version, which has it: --upstream 2.8.3",
        )


def read_units(root: Path) -> frozenset[Unit]:
    """Read the translation units of a tree from the names of its files."""
    names = (path.stem for path in (root / SOURCE_DIR).glob("*.cu"))
    return frozenset(unit for name in names if (unit := Unit.parse(name)))


def read_features(root: Path) -> frozenset[Feature]:
    """Read the features that a tree can leave out from the macros of its ``static_switch.h``."""
    switches = root / SOURCE_DIR / "static_switch.h"
    if not switches.is_file():
        return frozenset()
    macros = {
        macro.lower() for macro in _FEATURE_SWITCH.findall(switches.read_text(encoding="utf-8", errors="replace"))
    }
    return frozenset(feature for feature in Feature if feature.value in macros)


def read_version(root: Path) -> str:
    """Read the version that a tree's Python package gives itself; ``unknown`` where it gives none."""
    package = root / "flash_attn" / "__init__.py"
    if not package.is_file():
        return UNKNOWN_VERSION
    match = _VERSION.search(package.read_text(encoding="utf-8", errors="replace"))
    return match[1] if match else UNKNOWN_VERSION
