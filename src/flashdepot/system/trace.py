"""What the program does outside itself, for whoever asked to see it: programs it starts, files it fetches."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Call ``listener`` with a line for everything that follows."""
    _listeners.append(listener)


def trace(text: str) -> None:
    """Tell whoever listens; usually nobody does."""
    for listener in _listeners:
        listener(text)
