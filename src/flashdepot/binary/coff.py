"""COFF: objects of compilers for Windows, and the DLLs that linkers make of them.

Layouts are those of Microsoft's "PE Format" page, of images for 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec

from flashdepot.binary.window import COFF_MACHINES, NameBudget, Window

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<12xIIIIIHHI")
SECTION_FLAGS = _SECTION.size - 4
"""Where in a row of the section table its flags are."""
_SYMBOL = struct.Struct("<IIIhHBB")
_EXTERNAL = (2, 105)  # IMAGE_SYM_CLASS_EXTERNAL, and weak ones
_DIRECTORY = struct.Struct("<II")
_IMPORT = struct.Struct("<IIIII")
_EXPORT = struct.Struct("<24xIIII")
_PE32_PLUS = 0x20B
_DIRECTORIES = 112  # where they begin in a PE32+ optional header
_EXPORTS, _IMPORTS = 0, 1
_BY_ORDINAL = 1 << 63
_DLLS_LIMIT = 4096
_NAMES_LIMIT = 64 << 20
_SECTIONS_LIMIT = 96  # as the loader of Windows has it


class CoffSection(NamedTuple):
    """A row of the section table: where it is in the file, and what it says."""

    at: int
    name: str
    address: int
    size: int
    offset: int
    flags: int


class CoffSymbol(NamedTuple):
    """A symbol of an object: where it is in the file, and its name.

    ``external`` says that other files see it. One without a section and with a size is defined by the linker.
    """

    at: int
    name: str
    external: bool
    defined: bool


class CoffFile:
    """The header of an object, or of an image behind its signature, and the tables that it points to."""

    def __init__(self, window: Window, at: int = 0) -> None:
        self.window = window
        self.machine, count, _, self.symbols_at, self._symbol_count, optional, _ = window.unpack(
            _HEADER, at, "COFF header"
        )
        self.optional = window.part(at + _HEADER.size, optional, "optional header")
        start = at + _HEADER.size + optional
        table = window.part(start, count * _SECTION.size, "section table")
        self.sections = tuple(_section(table, start, at) for at in range(0, table.size, _SECTION.size))

    def contents(self) -> Iterator[tuple[str, Window]]:
        """Names and bytes of an object's sections; those without bytes, as ``.bss``, are left out."""
        for section in self.sections:
            name = section.name
            if name.startswith("/") and name[1:].isdecimal():  # more than 8 characters: in the table of strings
                name = self.window.text(self.symbols_end + int(name[1:]), "section name")
            if section.offset:
                yield name, self.window.part(section.offset, section.size, "section")

    @property
    def symbols_end(self) -> int:
        """Where the symbols end and their longer names begin."""
        return self.symbols_at + self._symbol_count * _SYMBOL.size

    @cached_property
    def names(self) -> Window:
        """The longer names, with the four bytes of their size in front."""
        (size,) = self.window.unpack(_U32, self.symbols_end, "symbol names")
        return self.window.part(self.symbols_end, size, "symbol names")

    def symbols(self) -> Iterator[CoffSymbol]:
        """The symbols of an object, without the records that add to one."""
        at = self.symbols_at
        while at < self.symbols_end:
            short, offset, value, section, _, storage, more = self.window.unpack(_SYMBOL, at, "symbol table")
            # A name of up to eight letters is in place of the number.
            name = self.window.take(at, 8, "symbol table").rstrip(b"\0").decode("latin-1") if short else ""
            name = name or self.names.text(offset, "symbol names")
            yield CoffSymbol(at, name, storage in _EXTERNAL, section != 0 or value != 0)
            at += (1 + more) * _SYMBOL.size


def _section(table: Window, start: int, at: int) -> CoffSection:
    name = table.take(at, 8, "section table").rstrip(b"\0").decode("latin-1")
    address, size, offset, *_, flags = table.unpack(_SECTION, at, "section table")
    return CoffSection(start + at, name, address, size, offset, flags)


class Import(msgspec.Struct, frozen=True):
    """A DLL that is needed, and the names taken from it; what is taken by number has no name."""

    dll: str
    names: tuple[str, ...]


class PeFile:
    """A PE image, read as far as it is asked."""

    def __init__(self, window: Window) -> None:
        self._window = window
        (at,) = window.unpack(_U32, 60, "DOS header")
        if window.take(at, 4, "PE header") != b"PE\0\0":
            raise self._window.damaged("it has no PE header")
        coff = CoffFile(window, at + 4)
        self.machine = COFF_MACHINES.get(coff.machine, f"CPU {coff.machine:#x}")
        if len(coff.sections) > _SECTIONS_LIMIT:
            raise self._window.damaged(f"it has {len(coff.sections)} sections")
        self._optional, self._table = coff.optional, coff.sections
        for section in self._table:
            window.part(section.offset, section.size, "section")

    @property
    def sections(self) -> tuple[tuple[str, Window], ...]:
        """Names, at most 8 characters long, and bytes of the sections."""
        return tuple((s.name, self._window.part(s.offset, s.size, "section")) for s in self._table)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """What it needs from other DLLs when it is loaded."""
        return tuple(self._read_imports())

    @cached_property
    def exported(self) -> frozenset[str]:
        """The names it exports."""
        address = self._directory(_EXPORTS)
        if address == 0:
            return frozenset()
        count, _, names, _ = self._at(address).unpack(_EXPORT, 0, "export table")
        if count == 0:
            return frozenset()
        table = self._at(names).part(0, 4 * count, "export names")
        budget = NameBudget(self._window, "export names", _NAMES_LIMIT)
        addresses = (table.unpack(_U32, at, "export names")[0] for at in range(0, table.size, 4))
        return frozenset(budget.spend(self._at(address).text(0, "export names")) for address in addresses)

    def _read_imports(self) -> Iterator[Import]:
        address = self._directory(_IMPORTS)
        if address == 0:
            return
        table = self._at(address)
        budget = NameBudget(self._window, "import names", _NAMES_LIMIT)
        for index in range(_DLLS_LIMIT):
            lookup, _, _, name, bound = table.unpack(_IMPORT, index * _IMPORT.size, "import table")
            if name == 0:
                return
            names = tuple(budget.spend(symbol) for symbol in self._imported_names(lookup or bound))
            yield Import(budget.spend(self._at(name).text(0, "import table")), names)
        raise self._window.damaged(f"it imports from more than {_DLLS_LIMIT} DLLs")

    def _imported_names(self, address: int) -> Iterator[str]:
        table = self._at(address)
        for at in range(0, table.size, _U64.size):
            (entry,) = table.unpack(_U64, at, "import names")
            if entry == 0:
                return
            yield "" if entry & _BY_ORDINAL else self._at(entry & 0x7FFFFFFF).text(2, "import names")

    def _directory(self, index: int) -> int:
        if self._optional.size < _DIRECTORIES or self._optional.unpack(_U16, 0, "optional header") != (_PE32_PLUS,):
            return 0
        (count,) = self._optional.unpack(_U32, _DIRECTORIES - 4, "optional header")
        if index >= count:
            return 0
        return self._optional.unpack(_DIRECTORY, _DIRECTORIES + index * _DIRECTORY.size, "data directories")[0]

    def _at(self, address: int) -> Window:
        for _, _, start, size, offset, _ in self._table:
            if start <= address < start + size:
                return self._window.part(offset + address - start, size - (address - start), "section")
        raise self._window.damaged(f"no section has the address {address:#x}")
