"""A source tree of flash-attention: where its parts are, and what it can compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.families.fa2.units import parse_unit
from flashdepot.model.selection import Feature, Unit
from flashdepot.upstream.layout import UNKNOWN_VERSION

SOURCE_DIR = "csrc/flash_attn/src"
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

    def require_complete(self, root: Path) -> None:
        """Check that a folder holds flash-attention's kernels and CUTLASS's headers.

        :raises UsageError: when it is not a tree of flash-attention.
        :raises MissingToolError: when CUTLASS is not in it.
        """
        if not self.units(root):
            raise UsageError(
                f"{root} is not a source tree of flash-attention: it has no translation unit such as "
                f"{SOURCE_DIR}/flash_fwd_hdim64_bf16_sm80.cu.",
                hint="Name the folder that holds csrc/ and setup.py, or a published version: --upstream 2.8.3",
            )
        include = root / CUTLASS_INCLUDE
        if missing := [header for header in _CUTLASS_HEADERS if not (include / header).is_file()]:
            raise MissingToolError(
                f"{root} lacks CUTLASS, which its kernels include: there is no {CUTLASS_INCLUDE}/{missing[0]}. "
                "CUTLASS is a git submodule, and a ZIP download never has submodules.",
                hint="In a git clone: git submodule update --init csrc/cutlass. "
                "Otherwise use a published version, which has it: --upstream 2.8.3",
            )

    def units(self, root: Path) -> frozenset[Unit]:
        """Read the translation units of a tree from the names of its files."""
        names = (path.stem for path in (root / SOURCE_DIR).glob("*.cu"))
        return frozenset(unit for name in names if (unit := parse_unit(name)))

    def features(self, root: Path) -> frozenset[Feature]:
        """Read the features that a tree can leave out from the macros of its ``static_switch.h``."""
        switches = root / SOURCE_DIR / "static_switch.h"
        if not switches.is_file():
            return frozenset()
        text = switches.read_text(encoding="utf-8", errors="replace")
        macros = {macro.lower() for macro in re.findall(_FEATURE_SWITCH, text)}
        return frozenset(feature for feature in Feature if feature.value in macros)

    def version(self, root: Path) -> str:
        """Read the version that a tree's Python package gives itself; ``unknown`` where it gives none."""
        package = root / "flash_attn" / "__init__.py"
        if not package.is_file():
            return UNKNOWN_VERSION
        match = re.search(_VERSION, package.read_text(encoding="utf-8", errors="replace"))
        return match[1] if match else UNKNOWN_VERSION

    def sources(self, root: Path) -> Iterator[Path]:
        """Yield the folder of the units, the ``.cpp`` files beside it, CUTLASS's ``include``, and what wheels take."""
        yield root / SOURCE_DIR
        yield root / CUTLASS_INCLUDE
        yield from (root / SOURCE_DIR).parent.glob("*.cpp")
        yield from (root / name for name in ("flash_attn", "LICENSE", "README.md", "AUTHORS"))
