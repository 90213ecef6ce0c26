"""Members of static libraries (GNU, BSD and Windows ``.a`` and ``.lib`` files), and what an object file may hold."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flashdepot.binary.coff import CoffFile
from flashdepot.binary.elf import ElfFile
from flashdepot.binary.window import FileKind, Window, identify, open_window
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
            raise window.damaged(f"no member begins at byte {position}, where one should")
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
                longest = long_names[int(name[1:]) :][:_NAME_LIMIT]
                name = longest.partition(b"\n")[0].partition(b"\0")[0].decode("utf-8", "replace")
            if name not in _INDEXES:
                yield Member(name.removesuffix("/"), body)


def is_import(member: Window) -> bool:
    """Whether a member of a Windows library is not code but a line that says which DLL has it."""
    return member.head(4) == _SHORT_IMPORT


def import_machine(member: Window) -> int:
    """The COFF machine number of such a line."""
    return member.unpack(_U16, 6, "import header")[0]


_TYPES = frozenset({*range(1, 5), *range(7, 10), *range(14, 19), 0x6FFF4C03, 0x70000001, 0x70000003})
"""Code, data, symbols, relocations, notes, groups; LLVM's table of addresses; x86-64's unwinding, AArch64's attributes."""

_ELF_NAMES = re.compile(
    r"|\.(l?text|l?rodata|l?data|l?bss|tdata|tbss|rela?|(pre)?init_array|fini_array|ctors|dtors|eh_frame|gcc_except_table"
    r"|comment|note|group|(sh)?strtab|symtab|symtab_shndx|llvm_addrsig|nv_fatbin|nvFatBinSegment|ARM\.attributes)(\..*)?"
    r"|[A-Za-z_]\w*"
)
_COFF_NAMES = re.compile(
    r"\.(text|rdata|data|bss|xdata|pdata|tls|ctors|dtors|CRT|eh_frame|llvm_addrsig|drectve|nv_fatb\w*|nvFatBi\w*)([.$].*)?"
    r"|[A-Za-z_]\w*"
)
_DIRECTIVE = re.compile(r'[-/](exclude-symbols|export|aligncomm):[\w$?@.,"]+', re.IGNORECASE)
"""They say which symbols a DLL offers, and how a variable is laid out in memory."""


def require_plain(path: Path) -> None:
    """:raises IntegrityError: for a file that is not an object, or one with something that linkers might obey."""
    with open_window(path) as window:
        if (found := next(_suspect(window), None)) is not None:
            raise IntegrityError(
                f"{path.name} has {found}, and an object of a kernel has none: linkers may read other files for it.",
                hint="Is this source what you think it is? A published version links: --upstream 2.8.3",
            )


def _suspect(window: Window) -> Iterator[str]:
    kind = identify(window)
    if kind is FileKind.ELF_OBJECT and (elf := ElfFile(window)).readable:
        for section in elf.sections:
            if section.kind not in _TYPES or _ELF_NAMES.fullmatch(section.name) is None:
                yield f"a section '{section.name}' of the type {section.kind:#x}"
    elif kind is FileKind.COFF_OBJECT:
        for name, body in CoffFile(window).contents():
            if _COFF_NAMES.fullmatch(name) is None:
                yield f"a section '{name}'"
            if name == ".drectve":
                words = body.take(0, body.size, "directives").decode("latin-1").split()
                yield from (f"the directive '{word}'" for word in words if _DIRECTIVE.fullmatch(word) is None)
    else:
        yield f"the form of a {kind.value}"
