"""The licence texts that travel with every binary made from flash-attention's source."""

from __future__ import annotations

import re

from flashdepot.errors import UsageError
from flashdepot.families.fa2.layout import CUTLASS_DIR, CUTLASS_INCLUDE
from flashdepot.system.plain_files import PlainFiles

_FIRST_COMMENT = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)


def licences(files: PlainFiles) -> dict[str, str]:
    """Return the texts of flash-attention and of CUTLASS by project name.

    Both are BSD-3-Clause, whose second condition asks that the text accompanies a binary. A published sdist leaves
    CUTLASS's licence file out; each of its headers begins with the same text.

    :raises UsageError: when the tree has no such text.
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
