"""Depfiles: what a compiler says it read (``-MD``), as a Makefile rule."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_WORD = re.compile(r"(?:\\.|[^\\\s])+")
_OCTAL = re.compile(r"(?:\\[0-3][0-7]{2})+")


def read_depfile(text: str, cwd: Path) -> tuple[str, ...]:
    r"""The inputs of the first rule, as absolute paths in the order of the file, without repeats.

    Lines are joined by a backslash at their end; a blank inside a name is written ``\ ``, a ``#`` as ``\#`` and a
    ``$`` as ``$$``. nvcc writes the target with a blank before the colon, GCC without, and the bytes of letters that are
    not ASCII as ``\303\274``.

    :raises ValueError: when there is no rule.
    """
    joined = text.replace("\r\n", "\n").replace("\\\n", " ")
    target = re.search(r"[^\s:]:(?=\s)|\s:(?=\s)", joined)
    if target is None:
        raise ValueError("the depfile holds no rule")
    rule = joined[target.end() :].split("\n", 1)[0]
    names = (re.sub(r"\\([ #\\])", r"\1", _letters(word)).replace("$$", "$") for word in _WORD.findall(rule))
    return tuple(dict.fromkeys(os.path.normpath(cwd / name) for name in names))


def decoded(data: bytes) -> str:
    """Text with paths in it, read as this system reads paths, whatever the bytes."""
    return data.decode(sys.getfilesystemencoding(), errors="surrogateescape")


def _letters(word: str) -> str:
    if os.sep == "\\":  # a folder may well be named by three digits
        return word
    return _OCTAL.sub(lambda found: decoded(bytes(int(code, 8) for code in found[0].split("\\")[1:])), word)
