"""Regular expressions that take time proportional to the text, whatever the text is: those of RE2.

A log is written by strangers. Python's ``re`` tries one way after another, and a line of 4 kB that fits a pattern almost
makes it try for minutes. RE2 has no such lines; its patterns have neither look-around nor back-references
(https://github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import re2

_MEMORY = 1 << 18


class Found(Protocol):
    """Where a pattern matches."""

    def start(self) -> int:
        """The first character of the match."""

    def groupdict(self) -> dict[str, str | None]:
        """What the named groups hold."""


class _Compiled(Protocol):
    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def search(self, text: str) -> Found | None: ...


@dataclass(frozen=True)
class Pattern:
    r"""A pattern of a rule. It is looked for in many lines at once and never matches across the end of one.

    ``\w``, ``\s``, ``\d`` and ``\b`` know ASCII only; ``\pL`` is a letter of any script.
    """

    text: str
    _compiled: _Compiled

    @classmethod
    def parse(cls, text: str, *, memory: int = _MEMORY) -> Pattern:
        """Compile a pattern.

        :param memory: bytes for its states, which RE2 forgets rather than taking more; where they are too few for a
            pattern of many characters, it becomes slow, and stays linear.
        :raises ValueError: when RE2 does not take it.
        """
        options = re2.Options()
        options.max_mem = memory
        options.never_nl = True
        options.log_errors = False
        try:
            return cls(text, re2.compile(f"(?m){text}", options))
        except re2.error as error:
            reason = error.args[0]
            raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error

    @property
    def groups(self) -> frozenset[str]:
        """The names of its groups."""
        return frozenset(self._compiled.groupindex)

    def search(self, lines: str) -> Found | None:
        """The first match in lines that are separated by line feeds, or ``None``."""
        return self._compiled.search(lines)
