"""What the program does outside itself, for anyone who asked to see it: programs it starts, files it fetches."""

from __future__ import annotations

import re
from collections.abc import Callable

_CREDENTIALS = re.compile(r"(https?://)[^/\s'\"]+@")
_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Call ``listener`` with a line for everything that follows."""
    _listeners.append(listener)


def trace(text: str) -> None:
    """Say it to who listens, without the credentials of any URL."""
    for listener in _listeners:
        listener(without_credentials(text))


def without_credentials(text: str) -> str:
    """A text without the users, passwords and tokens of the URLs in it."""
    return _CREDENTIALS.sub(r"\1", text)
