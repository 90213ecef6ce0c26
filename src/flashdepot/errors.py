"""One family of errors. Each class has its exit code; each error says what happened and what fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

_OF_OTHERS = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp8": "e4m3", "backward": "bwd", "decode": "splitkv",
    "x86_64-unknown-linux-gnu": "linux-x86_64", "aarch64-unknown-linux-gnu": "linux-aarch64",
    "x86_64-pc-windows-msvc": "windows-x86_64", "win_amd64": "windows-x86_64",
}  # fmt: skip
"""Words of PyTorch, Rust and wheel tags, and what they are here."""


def nearest(word: str, known: Iterable[str], like: float = 0.6) -> str:
    """The one of some known words that was probably meant; empty where none is near, or two are equally.

    :param like: how much of the two must be the same, from 0 to 1.
    """
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415  (only a mistake pays for it)

    word, lower = word.lower(), {one.lower(): one for one in known}
    if meant := lower.get(_OF_OTHERS.get(word, "")):
        return meant
    found = get_close_matches(word, lower, 2, like)
    alike = [SequenceMatcher(None, one, word).ratio() for one in found]
    return lower[found[0]] if found and alike.count(alike[0]) == 1 else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence, after a space, with the :func:`nearest` of some known words; empty where none is."""
    return f" Did you mean '{near}'?" if (near := nearest(word, known)) else ""


class FlashdepotError(Exception):
    """An error meant for the person at the keyboard.

    :param message: what happened, with the value, and why it matters or what was expected.
    :param hint: the command or option that fixes it; empty when there is none.
    """

    exit_code: ClassVar[int] = 1
    """Our own fault."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(FlashdepotError):
    """An option, a name or a project file that cannot be understood.

    :param meant: a word that is wrong, and the one that was probably meant, where both are known.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", meant: tuple[str, str] = ("", "")) -> None:
        super().__init__(message, hint=hint)
        self.meant = meant


def not_one_of(word: str, what: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """What to raise for a word that is not one of some known ones: ``what`` they are, with its article."""
    words = list(known)
    said = f"'{word}' is not {what}: there are {', '.join(words)}.{did_you_mean(word, words)}"
    return UsageError(said, hint=hint, meant=(word, nearest(word, words)))


class MissingToolError(FlashdepotError):
    """The host lacks something that the work needs: a compiler, disk space, write access, memory."""

    exit_code = 3


class IncompatibleError(FlashdepotError):
    """Nothing that exists, or could be built here, runs on the host that was asked for."""

    exit_code = 4


class CompileError(FlashdepotError):
    """A compiler or a linker refused its input.

    :param log: the file with all that it wrote, where that was kept.
    """

    exit_code = 5

    def __init__(self, message: str, *, hint: str = "", log: Path | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log = log


class IntegrityError(FlashdepotError):
    """Bytes are not what their digest, their format or their manifest says."""

    exit_code = 6


GET_NEWER = "in its clone: git pull && uv tool install --force . (or: pip install .)"
"""How a newer flashdepot is had while it is not on PyPI."""


class NewerError(IntegrityError):
    """A file is whole, and another release of flashdepot wrote it: this one does not know its schema or a word in it."""


class NetworkError(FlashdepotError):
    """Something must be fetched and the network, or leave to use it, is not there."""

    exit_code = 7


class ConsentError(FlashdepotError):
    """Something would be compiled, and nobody has said yes to it.

    :param smaller: what takes less time, a line each.
    """

    exit_code = 8

    def __init__(self, message: str, *, hint: str = "", smaller: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint="\n".join([*smaller, hint]))
        self.smaller = smaller
