"""What a file is, by its first bytes; its name may lie."""

from __future__ import annotations

import re
import struct
from enum import Enum

import msgspec

from flashdepot.binary.window import Window


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
