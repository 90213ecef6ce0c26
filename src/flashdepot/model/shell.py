"""Words of a command as anyone who reads them can paste them: into a POSIX shell, or into both cmd and PowerShell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable


def joined(words: Iterable[object]) -> str:
    """The line that gives a program these words, in a shell of this system."""
    return " ".join((quoted_for_windows if os.name == "nt" else shlex.quote)(str(word)) for word in words)


def quoted_for_windows(word: str) -> str:
    r"""A word in double quotes, unless it has only letters, digits and ``. _ - + = : / \ ~``.

    Only these quotes mean the same to cmd and PowerShell, which takes a comma outside of them for a list. cmd has no quote
    for percent signs, nor both of them one for ``$``: names between or behind them stand for variables, if there are such.
    """
    if word and not re.search(r"[^\w.+=:/\\~-]", word):
        return word
    return '"' + re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + ('\\"' if found[2] else ""), word) + '"'


def removing(path: object) -> str:
    """The command that removes a file."""
    return joined(["del" if os.name == "nt" else "rm", path])
