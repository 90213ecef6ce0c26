"""What a build may use of its machine; quantities and command lines as people write them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from enum import Enum
from importlib.util import find_spec

import msgspec

from flashdepot.errors import UsageError, did_you_mean

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def size(count: float) -> str:
    """A number of bytes as people say it: ``3.7 MB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":  # noqa: PLR2004
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """A number of things as people say it: ``1 blob``, ``2,048 blobs``, ``2 libraries``."""
    several = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else several}"


def duration(seconds: float) -> str:
    """Seconds as people say them: ``48 s``, ``12 min``, ``2 h 05 min``."""
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    if seconds < 120:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"  # noqa: PLR2004


_LARGEST = 2.0**63
"""Bytes: more than any memory or file has."""


def parse_size(text: str) -> int:
    """Bytes of ``8GB``, ``7.5 GiB`` or ``500MB``; :raises UsageError: for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    count = float(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else 0.0
    if not 0 < count < _LARGEST:
        raise UsageError(f"'{text}' is not an amount of bytes: expected one such as 8GB or 500MB.")
    return int(count)


class Compiling(str, Enum):
    """Whether compilers may start: never, after a yes where it takes longer than two minutes, or without asking."""

    NEVER = "never"
    ASK = "ask"
    ALWAYS = "always"

    @classmethod
    def parse(cls, text: str, said_in: str) -> Compiling:
        """Read one of the words; :raises UsageError: for another, with the place that has it."""
        words = [member.value for member in cls]
        if text not in words:
            raise UsageError(f"{said_in} is '{text}': expected {', '.join(words)}.{did_you_mean(text, words)}")
        return cls(text)


BUILD_VARIABLE = "FLASHDEPOT_BUILD"
"""The environment variable that has a word of :class:`Compiling`."""


class Farm(msgspec.Struct, frozen=True):
    """A Dask cluster that compiles: the address of its scheduler (``tls://HOST:8786``) or the path of a scheduler file.

    With ``open+`` before it, what is said on a network need not be encrypted.
    ``slots`` and ``memory``, in bytes, are what its workers had together when somebody looked, 0 before.
    """

    address: str
    slots: int = 0
    memory: int = 0


class Limits(msgspec.Struct, frozen=True):
    """``jobs`` compilers at once, ``None``: one a core. ``memory`` in bytes, ``None``: the machine's, less a reserve.

    With ``keep_going`` a failure does not keep the other units from being compiled. With a ``farm`` its workers compile,
    and ``memory`` says nothing: they know theirs. ``build`` says whether compilers may start, ``None``: what
    ``FLASHDEPOT_BUILD`` or the user's settings say, else :attr:`Compiling.ASK`.
    """

    jobs: int | None = None
    memory: int | None = None
    keep_going: bool = False
    farm: Farm | None = None
    build: Compiling | None = None


def install_extra(name: str) -> str:
    """The command that adds an extra to the flashdepot that runs; pip finds that installed, as no index has the name."""
    installer = (
        [sys.executable, "-m", "pip", "install"]
        if find_spec("pip")
        else ["uv", "pip", "install", "--python", sys.executable]
    )
    return joined([*installer, f"flashdepot[{name}]"])


def joined(words: Iterable[object]) -> str:
    """The line that gives a program these words, in a shell of this system."""
    return " ".join((quoted_for_windows if os.name == "nt" else shlex.quote)(str(word)) for word in words)


def quoted_for_windows(word: str) -> str:
    r"""A word in double quotes, unless it has only letters, digits and ``. _ - + = : / \ ~``.

    Only these quotes mean the same to cmd and PowerShell, which takes a comma outside of them for a list. cmd has no quote
    for percent signs, nor both of them one for ``$``: names between or after them are variables, if there are such.
    """
    if word and not re.search(r"[^\w.+=:/\\~-]", word):
        return word
    return '"' + re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + ('\\"' if found[2] else ""), word) + '"'


def removing(*paths: object) -> str:
    """The command that removes files."""
    return joined(["del" if os.name == "nt" else "rm", *paths])
