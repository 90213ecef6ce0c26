"""A source tree of flash-attention: where its parts are, and what it can compile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.families.fa2.units import parse_unit
from flashdepot.model.selection import Feature, Unit
from flashdepot.upstream.layout import UNKNOWN_VERSION

if TYPE_CHECKING:
    from flashdepot.system.plain_files import PlainFiles

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
        """Check that a folder holds flash-attention's kernels and CUTLASS's headers.

        :raises UsageError: when it is not a tree of flash-attention.
        :raises MissingToolError: when CUTLASS is not in it.
        """
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
        """The folder of the units, the ``.cpp`` files beside it, CUTLASS's ``include``, and what wheels take."""
        beside = [
            name for name in files.below(_C_DIR) if name.endswith(".cpp") and name.count("/") == _C_DIR.count("/") + 1
        ]
        return (SOURCE_DIR, CUTLASS_INCLUDE, *beside, "flash_attn", "LICENSE", "README.md", "AUTHORS")
