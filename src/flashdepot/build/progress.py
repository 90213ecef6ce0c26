"""What a build tells the person who waits for it. Everything goes to standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
    """Who wants to hear. Every call returns at once."""

    def note(self, text: str) -> None:
        """Say one sentence."""

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """A compilation ended well after so many wall seconds."""

    def update(self, state: Snapshot) -> None:
        """Time has passed."""


class Silent:
    """Tells nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """Say nothing."""

    def update(self, state: Snapshot) -> None:
        """Say nothing."""
