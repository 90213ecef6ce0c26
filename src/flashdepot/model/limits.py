"""What a build may use of its machine."""

from __future__ import annotations

from enum import Enum

import msgspec

from flashdepot.errors import UsageError, did_you_mean


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
