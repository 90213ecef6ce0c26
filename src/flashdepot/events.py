"""What a call of the API says while it works: the one sink for notes, warnings, progress and questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

Download = Callable[[int, "int | None"], None]
"""Called with the bytes received so far, and how many there will be if that is known."""


@dataclass(frozen=True)
class Snapshot:
    """A build at one moment. ``memory`` is what its compilers hold in bytes, ``eta`` the wall seconds left."""

    total: int
    compiled: int
    reused: int
    running: Sequence[str]
    elsewhere: Sequence[str]
    memory: int
    eta: float

    @property
    def done(self) -> int:
        """Compilations that need no more work."""
        return self.compiled + self.reused


class BuildProgress(Protocol):
    """Who wants to hear how a build goes. Every call returns at once."""

    def note(self, text: str) -> None:
        """Say one sentence."""

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """A compilation ended well after so many wall seconds."""

    def update(self, state: Snapshot) -> None:
        """Time has passed."""


class Silent:
    """Progress that nobody wants to hear."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """Say nothing."""

    def update(self, state: Snapshot) -> None:
        """Say nothing."""


class Events:
    """Says nothing and agrees to nothing. Override what you want to hear, and what you want to decide.

    Typical usage::

        class Printed(Events):
            def note(self, text):
                print(text)

        api.get(events=Printed())
    """

    def note(self, text: str) -> None:
        """Something that is good to know."""

    def warn(self, text: str) -> None:
        """A problem that did not stop the work."""

    def download(self, name: str) -> AbstractContextManager[Download]:  # noqa: ARG002
        """A file is about to be fetched; what is returned hears how far it is."""
        return nullcontext(lambda _received, _total: None)

    def building(self) -> AbstractContextManager[BuildProgress]:
        """Compilers are about to run; what is returned hears how far they are."""
        return nullcontext(Silent())

    def confirm(self, question: str) -> bool:  # noqa: ARG002
        """Whether to go on: before what takes long and was not asked for by name, or what nobody vouches for."""
        return False
