"""Checked reading: every offset comes from a file that nobody vouches for."""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flashdepot.errors import IntegrityError

FETCH_AGAIN = "Fetch the file again, or build it again, and compare its size with the original's."
_NAME_LIMIT = 1 << 16


class Window(msgspec.Struct, frozen=True):
    """A stretch of bytes, of a mapped file or of memory, that never reads outside itself.

    ``name`` is what errors call the file; ``start`` and ``size`` are in bytes of ``data``.
    """

    data: bytes | mmap.mmap
    name: str
    start: int
    size: int

    @classmethod
    def of(cls, data: bytes | mmap.mmap, name: str) -> Window:
        """The whole of ``data``."""
        return cls(data, name, 0, len(data))

    def part(self, offset: int, size: int, what: str) -> Window:
        """A stretch of this one; :raises IntegrityError: when the bytes end before it does."""
        self._require(offset, size, what)
        return Window(self.data, self.name, self.start + offset, size)

    def take(self, offset: int, size: int, what: str) -> bytes:
        """A copy of ``size`` bytes; :raises IntegrityError: when the bytes end before."""
        self._require(offset, size, what)
        begin = self.start + offset
        return bytes(self.data[begin : begin + size])

    def head(self, size: int) -> bytes:
        """The first bytes, as many as there are up to ``size``."""
        return self.take(0, min(size, self.size), "head")

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """Integers laid out as ``layout``; :raises IntegrityError: when the bytes end before."""
        self._require(offset, layout.size, what)
        return layout.unpack_from(self.data, self.start + offset)

    def text(self, offset: int, what: str) -> str:
        """A NUL-terminated name; :raises IntegrityError: when it does not end within 64 KiB or the window."""
        self._require(offset, 1, what)
        begin = self.start + offset
        end = self.data.find(b"\0", begin, min(begin + _NAME_LIMIT, self.start + self.size))
        if end < 0:
            raise IntegrityError(f"{self.name} is damaged: a name in its {what} does not end.", hint=FETCH_AGAIN)
        return bytes(self.data[begin:end]).decode("utf-8", "replace")

    def find(self, wanted: bytes, offset: int) -> int:
        """Where ``wanted`` is next, or -1."""
        at = self.data.find(wanted, self.start + offset, self.start + self.size)
        return at - self.start if at >= 0 else -1

    def _require(self, offset: int, size: int, what: str) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise IntegrityError(
                f"{self.name} is cut off or damaged: its {what} should end at byte {offset + size}, "
                f"and there are {self.size}.",
                hint=FETCH_AGAIN,
            )


class NameBudget:
    """How many characters of names one table may give: names may share bytes, and a hostile table shares them all."""

    def __init__(self, window: Window, what: str, limit: int = 256 << 20) -> None:
        self._left = min(limit, 4 * window.size + _NAME_LIMIT)
        self._problem = f"{window.name} is damaged: its {what} overlap."

    def spend(self, name: str) -> str:
        """Give the name back; :raises IntegrityError: when there were too many."""
        self._left -= len(name) + 1
        if self._left < 0:
            raise IntegrityError(self._problem, hint=FETCH_AGAIN)
        return name


@contextlib.contextmanager
def open_window(path: Path, name: str = "") -> Iterator[Window]:
    """Map a file; its pages are read when they are looked at, so a file of many gigabytes costs no memory.

    :raises OSError: when it cannot be read.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield Window.of(b"", name or path.name)
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield Window.of(data, name or path.name)
