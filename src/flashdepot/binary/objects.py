"""Object files: members of static libraries, what one may hold, and names in them made private."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from flashdepot.binary.coff import SECTION_FLAGS, CoffFile
from flashdepot.binary.elf import SECTION, SYMBOL, ElfFile
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
    """The members that hold code, without indexes and tables of names."""
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
                f"{path.name} has {found}, which no compiled kernel has: it could make a linker read other files.",
                hint="Check that you trust this source, or use a published version: --upstream 2.8.3",
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


_RUNTIME = re.compile(r"(__)?cuda[A-Z]\w*")
_RUNTIME_OF_ELF = re.compile(r"(__)?cuda[A-Z]\w*|atexit")
"""With ``atexit``, of which the run time has its own; that of Windows is each library's own already."""
_PREFIX = "flashdepot_"

_SHT_SYMTAB = 2
_SHF_X86_64_LARGE = 0x10000000
_FLAGS = struct.Struct("<I")
_WRITABLE = 0x80000000
_AMD64 = 0x8664


def privately(objects: Sequence[Path], folder: Path) -> list[Path]:
    """Copies of object files in a new folder, under the same names, with :func:`with_private_runtime`."""
    folder.mkdir()
    copies = [folder / path.name for path in objects]
    for path, copy in zip(objects, copies, strict=True):
        copy.write_bytes(with_private_runtime(path.read_bytes(), path.name))
    return copies


def with_private_runtime(data: bytes, name: str) -> bytes:
    """The bytes of an object file in which every name of the CUDA runtime, defined or not, is a private one.

    ``cudaLaunchKernel`` becomes ``flashdepot_cudaLaunchKernel``. Symbols get other names; everything else stays where
    it is. Sections for x86-64 that say they are large say so no more (:func:`_with_ordinary_sections`).

    :param data: an ELF object of 64 bits, little-endian, or a COFF object for x86-64.
    :param name: what errors call the file.
    """
    if _is_elf(data, name):
        renamed = _rename_elf(Window.of(data, name), _RUNTIME_OF_ELF.fullmatch)
        return _with_ordinary_sections(Window.of(renamed, name))
    return _rename_coff(Window.of(data, name), _RUNTIME.fullmatch)


def with_private_names(data: bytes, name: str, private: AbstractSet[str]) -> bytes:
    """The bytes of an object file in which these names, defined or not, are private ones; otherwise as above."""
    rename = _rename_elf if _is_elf(data, name) else _rename_coff
    return rename(Window.of(data, name), private.__contains__)


def defined_names(data: bytes, name: str) -> frozenset[str]:
    """The names that an object file defines for others."""
    window = Window.of(data, name)
    if _is_elf(data, name):
        rows = _elf_symbols_at(ElfFile(window))
        return frozenset(found for _, _, symbol, found in rows if symbol[1] >> 4 and symbol[3] != 0)
    return frozenset(symbol.name for symbol in CoffFile(window).symbols() if symbol.external and symbol.defined)


def for_every_linker(data: bytes, name: str) -> bytes:
    """The bytes of a COFF object of MinGW's kind as Microsoft's linkers take it as well; those of another as they are.

    Its ``.ctors`` are ``.CRT$XCU`` then, which the start-up code of either runs: both hold addresses of functions, and
    Microsoft's linkers know the second only. What it tells the linker (``.drectve``) is blank: which symbols a DLL is not
    to export, in a word that lld-link refuses.

    :raises IntegrityError: as :func:`with_private_runtime`.
    """
    if _is_elf(data, name):
        return data
    window, changed = Window.of(data, name), bytearray(data)
    for section in CoffFile(window).sections:
        if section.name == ".ctors":
            changed[section.at : section.at + 8] = b".CRT$XCU"
            _FLAGS.pack_into(changed, section.at + SECTION_FLAGS, section.flags & ~_WRITABLE)
        elif section.name == ".drectve":
            size = len(window.take(section.offset, section.size, "directives"))
            changed[section.offset : section.offset + section.size] = b" " * size
    return bytes(changed)


def _is_elf(data: bytes, name: str) -> bool:
    if data[:6] == b"\x7fELF\x02\x01":
        return True
    if int.from_bytes(data[:2], "little") == _AMD64:
        return False
    raise IntegrityError(f"{name} is not an object file for Linux or Windows.")


class _Names:
    """A table of names that grows at its end: names that share their letters with others stay as they were."""

    def __init__(self, old: bytes, private: Callable[[str], object]) -> None:
        self.bytes = bytearray(old)
        self._private = private
        self._new: dict[str, int] = {}

    def renamed(self, name: str) -> int | None:
        """Where the private name for this one is in the table; ``None`` for a name that stays."""
        if not self._private(name):
            return None
        if name not in self._new:
            self._new[name] = len(self.bytes)
            self.bytes += f"{_PREFIX}{name}".encode() + b"\0"
        return self._new[name]


def _elf_symbols_at(elf: ElfFile) -> Iterator[tuple[int, int, tuple[int, ...], str]]:
    """Each symbol of an object's tables that has a name: its table, where it is, what it says, and its name."""
    for index, section in enumerate(elf.headers):
        if section[1] == _SHT_SYMTAB:
            names = elf.names_of(section)
            table = elf.bytes_of(section)
            for at in range(0, table.size - SYMBOL.size + 1, SYMBOL.size):
                symbol = table.unpack(SYMBOL, at, "symbol table")
                if symbol[0]:
                    yield index, section[4] + at, symbol, names.text(symbol[0], "symbol names")


def _rename_elf(window: Window, private: Callable[[str], object]) -> bytes:
    elf = ElfFile(window)
    changed = bytearray(window.take(0, window.size, "object"))
    tables: dict[int, _Names] = {}
    for index, at, symbol, name in _elf_symbols_at(elf):
        if index not in tables:
            old = elf.names_of(elf.headers[index])
            tables[index] = _Names(old.take(0, old.size, "symbol names"), private)
        where = tables[index].renamed(name)
        if where is not None:
            SYMBOL.pack_into(changed, at, where, *symbol[1:])
    for index, names in tables.items():
        named = elf.headers[index][6]
        fields = list(elf.headers[named])
        if len(names.bytes) > fields[5]:  # the longer table comes after everything else
            fields[4], fields[5] = len(changed), len(names.bytes)
            changed += names.bytes
            SECTION.pack_into(changed, elf.headers_at + named * SECTION.size, *fields)
    return bytes(changed)


def _with_ordinary_sections(window: Window) -> bytes:
    """An object for x86-64 whose sections may be anywhere among those of other objects.

    CuTe DSL's compiler marks its code as large, and lld, which Rust links with, puts such code before the table of stack
    frames. lld sorts that table as if all code came after it, so that a search in it misses functions: a panic or an
    exception of the program ends it then. What such code refers to by 64 bits may be anywhere.
    """
    elf = ElfFile(window)
    changed = bytearray(window.take(0, window.size, "object"))
    for index, (name, kind, flags, *rest) in enumerate(elf.headers if elf.machine == "x86_64" else ()):
        if flags & _SHF_X86_64_LARGE:
            place = elf.headers_at + index * SECTION.size
            SECTION.pack_into(changed, place, name, kind, flags & ~_SHF_X86_64_LARGE, *rest)
    return bytes(changed)


def _rename_coff(window: Window, private: Callable[[str], object]) -> bytes:
    coff = CoffFile(window)
    names = _Names(coff.names.take(0, coff.names.size, "symbol names"), private)
    changed = bytearray(window.take(0, window.size, "object"))
    for symbol in coff.symbols():
        renamed = names.renamed(symbol.name)
        if renamed is not None:
            struct.pack_into("<II", changed, symbol.at, 0, renamed)
    struct.pack_into("<I", names.bytes, 0, len(names.bytes))
    end = coff.symbols_end
    return bytes(changed[:end] + names.bytes + changed[end + coff.names.size :])
