"""Checked reading of untrusted files, and what a file is by its first bytes: its name may be wrong."""

from __future__ import annotations

import contextlib
import mmap
import re
import struct
from collections.abc import Iterator
from enum import Enum
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
            raise self.damaged(f"a name in its {what} is not terminated")
        return bytes(self.data[begin:end]).decode("utf-8", "replace")

    def find(self, wanted: bytes, offset: int) -> int:
        """Where ``wanted`` is next, or -1."""
        at = self.data.find(wanted, self.start + offset, self.start + self.size)
        return at - self.start if at >= 0 else -1

    def damaged(self, what: str) -> IntegrityError:
        """The error for a file that contradicts itself."""
        return IntegrityError(f"{self.name} is damaged: {what}.", hint=FETCH_AGAIN)

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
        self._problem = window.damaged(f"its {what} overlap")

    def spend(self, name: str) -> str:
        """Give the name back; :raises IntegrityError: when there were too many."""
        self._left -= len(name) + 1
        if self._left < 0:
            raise self._problem
        return name


@contextlib.contextmanager
def open_window(path: Path, name: str = "") -> Iterator[Window]:
    """Map a file; its pages are read when they are checked, so a file of many gigabytes costs no memory.

    :raises OSError: when it cannot be read.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield Window.of(b"", name or path.name)
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield Window.of(data, name or path.name)


class FileKind(Enum):
    """The kinds of file that carry, or stand in for, compiled kernels. The value is the name for people."""

    ELF_SHARED = "ELF shared library"
    ELF_EXECUTABLE = "ELF program"
    ELF_OBJECT = "ELF object"
    PE_LIBRARY = "Windows DLL"
    PE_PROGRAM = "Windows program"
    COFF_OBJECT = "COFF object"
    ARCHIVE = "static library"
    THIN_ARCHIVE = "thin archive"
    ZIP = "zip archive"
    LFS_POINTER = "Git LFS pointer"
    EMPTY = "empty file"
    WEB_PAGE = "web page"
    UNKNOWN = "unknown format"


ELF_MACHINES = {3: "i686", 22: "s390x", 21: "ppc64le", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""``e_machine`` of the ELF specification, as wheel tags name the CPUs."""

COFF_MACHINES = {0x014C: "i686", 0x8664: "x86_64", 0xAA64: "aarch64"}
"""The COFF header's ``Machine``, from Microsoft's PE format page."""

LFS_MAGIC = b"version https://git-lfs"
"""How a Git LFS pointer begins, of the format's first and of every later version of it."""

_ELF_TYPES = {1: FileKind.ELF_OBJECT, 2: FileKind.ELF_EXECUTABLE, 3: FileKind.ELF_SHARED}
_HEAD = 1024
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_PE_DLL = 0x2000


class LfsPointer(msgspec.Struct, frozen=True):
    """What a Git LFS pointer stands for: the SHA-256 and the size in bytes of the real file."""

    oid: str
    size: int


def identify(window: Window) -> FileKind:
    """The kind of a file by its magic bytes. Never raises: what is too short to tell is unknown."""
    head = window.head(_HEAD)
    if not head:
        return FileKind.EMPTY
    if head.startswith(b"\x7fELF"):
        if len(head) < 18:  # noqa: PLR2004  (up to and with e_type)
            return FileKind.ELF_SHARED
        order = ">" if head[5] == 2 else "<"  # noqa: PLR2004  (ELFDATA2MSB)
        return _ELF_TYPES.get(struct.unpack_from(order + "H", head, 16)[0], FileKind.ELF_SHARED)
    if head.startswith(b"MZ"):
        return _pe_kind(window)
    for magic, kind in (
        (b"!<arch>\n", FileKind.ARCHIVE),
        (b"!<thin>\n", FileKind.THIN_ARCHIVE),
        (b"PK\x03\x04", FileKind.ZIP),
        (b"PK\x05\x06", FileKind.ZIP),
        (LFS_MAGIC, FileKind.LFS_POINTER),
    ):
        if head.startswith(magic):
            return kind
    if re.match(rb"\s*<(?:!doctype|html|\?xml)", head, re.IGNORECASE):
        return FileKind.WEB_PAGE
    if len(head) >= 20 and _U16.unpack_from(head)[0] in COFF_MACHINES:  # noqa: PLR2004  (a COFF header)
        return FileKind.COFF_OBJECT
    return FileKind.UNKNOWN


def read_lfs_pointer(head: bytes) -> LfsPointer | None:
    """Read a pointer's text, LF or CRLF; ``None`` when it lacks the digest or the size.

    The format is Git LFS's ``docs/spec.md``: ``oid sha256:<64 hex digits>`` and ``size <bytes>``, a line each.
    """
    oid = re.search(rb"^oid sha256:([0-9a-f]{64})\r?$", head, re.MULTILINE)
    size = re.search(rb"^size (\d{1,18})\r?$", head, re.MULTILINE)
    return LfsPointer(oid[1].decode(), int(size[1])) if oid and size else None


def _pe_kind(window: Window) -> FileKind:
    if window.size < 64:  # noqa: PLR2004  (the DOS header)
        return FileKind.PE_LIBRARY
    (header,) = window.unpack(_U32, 60, "DOS header")
    if header + 24 > window.size or window.take(header, 4, "PE header") != b"PE\0\0":
        return FileKind.PE_LIBRARY
    (characteristics,) = window.unpack(_U16, header + 22, "COFF header")
    return FileKind.PE_LIBRARY if characteristics & _PE_DLL else FileKind.PE_PROGRAM
