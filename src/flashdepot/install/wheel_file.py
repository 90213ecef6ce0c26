"""A wheel on this disk that is to be installed."""

from __future__ import annotations

from pathlib import Path

import msgspec


class WheelFile(msgspec.Struct, frozen=True):
    """Whose it is (``ours``, ``official``, ``community``, or ``named`` by the user), and what its bytes are.

    ``url`` is where it came from, empty for a file and for ours.
    """

    source: str
    path: Path
    sha256: str
    size: int
    url: str = ""
