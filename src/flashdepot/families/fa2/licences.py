"""The licence texts that travel with every binary made from flash-attention's source."""

from __future__ import annotations

import re
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.families.fa2.layout import CUTLASS_DIR, CUTLASS_INCLUDE

_FIRST_COMMENT = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)


def licences(root: Path) -> dict[str, str]:
    """Return the texts of flash-attention and of CUTLASS by project name.

    Both are BSD-3-Clause, whose second condition asks that the text accompanies a binary. A published sdist leaves
    CUTLASS's licence file out; each of its headers begins with the same text.

    :raises UsageError: when the tree has no such text.
    """
    return {"flash-attention": _text(root / "LICENSE"), "cutlass": _cutlass(root)}


def _cutlass(root: Path) -> str:
    file = root / CUTLASS_DIR / "LICENSE.txt"
    if file.is_file():
        return _text(file)
    header = root / CUTLASS_INCLUDE / "cutlass" / "cutlass.h"
    comment = _FIRST_COMMENT.match(_text(header))
    lines = [re.sub(r"^[ \t]*\*+[ \t]?|\*+$", "", line).rstrip() for line in comment[1].splitlines()] if comment else []
    text = "\n".join(lines).strip() + "\n"
    if "Redistribution" not in text:
        raise _without_licence(header)
    return text


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise _without_licence(path) from error


def _without_licence(path: Path) -> UsageError:
    return UsageError(
        f"{path} has no licence text, and no binary may be passed on without it.",
        hint="Restore it: git checkout -- LICENSE csrc/cutlass, or use a published version: --upstream 2.8.3",
    )
