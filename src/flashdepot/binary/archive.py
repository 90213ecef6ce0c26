"""Members of static libraries: GNU, BSD and Windows ``.a`` and ``.lib`` files (``ar.h``; "PE Format", archives)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from flashdepot.binary.window import FETCH_AGAIN, Window
from flashdepot.errors import IntegrityError

_HEADER = 60
_SHORT_IMPORT = b"\0\0\xff\xff"
_U16 = struct.Struct("<H")
_INDEXES = {"/", "/SYM64/", "__.SYMDEF", "__.SYMDEF SORTED", "/<ECSYMBOLS>/", "/<XFGHASHMAP>/"}
_LONG_NAMES = "//"
_NAME_LIMIT = 1 << 12


class Member(msgspec.Struct, frozen=True):
    """A file inside a static library."""

    name: str
    window: Window


def read_members(window: Window) -> Iterator[Member]:
    """The members that hold code, without indexes and tables of names.

    :raises IntegrityError: when a member's header is none, or reaches past the end.
    """
    position, long_names = 8, b""
    while position < window.size:
        header = window.take(position, _HEADER, "member header")
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            raise IntegrityError(
                f"{window.name} is damaged: no member begins at byte {position}, where one should.", hint=FETCH_AGAIN
            )
        body = window.part(position + _HEADER, int(digits), "member")
        position += _HEADER + body.size + (body.size & 1)
        name = header[:16].decode("latin-1").rstrip()
        if name == _LONG_NAMES:
            long_names = body.head(1 << 24)
        elif name not in _INDEXES:
            if name.startswith("#1/") and name[3:].isdecimal():  # BSD: the name is the body's beginning
                size = int(name[3:])
                name = body.take(0, min(size, _NAME_LIMIT), "member name").rstrip(b"\0").decode("utf-8", "replace")
                body = body.part(size, body.size - size, "member")
            elif name.startswith("/") and name[1:].isdecimal():
                name = _long_name(long_names, int(name[1:]))
            if name not in _INDEXES:
                yield Member(name.removesuffix("/"), body)


def is_import(member: Window) -> bool:
    """Whether a member of a Windows library is no code but a line that says which DLL has it."""
    return member.head(4) == _SHORT_IMPORT


def import_machine(member: Window) -> int:
    """The COFF machine number of such a line."""
    return member.unpack(_U16, 6, "import header")[0]


def _long_name(table: bytes, offset: int) -> str:
    longest = table[offset : offset + _NAME_LIMIT]
    return longest.partition(b"\n")[0].partition(b"\0")[0].decode("utf-8", "replace")
