"""What a Windows DLL imports, and its sections. Layouts are those of Microsoft's "PE Format" page, for 64 bits."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property

import msgspec

from flashdepot.binary.window import COFF_MACHINES, FETCH_AGAIN, NameBudget, Window
from flashdepot.errors import IntegrityError

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_COFF = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8xIIII16x")
_SYMBOL_SIZE = 18
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


def object_sections(window: Window) -> Iterator[tuple[str, Window]]:
    """Names and bytes of the sections of a COFF object.

    :raises IntegrityError: when it is cut off.
    """
    _, count, _, symbols, symbol_count, optional, _ = window.unpack(_COFF, 0, "COFF header")
    table = window.part(_COFF.size + optional, count * _SECTION.size, "section table")
    strings = symbols + symbol_count * _SYMBOL_SIZE
    for at in range(0, table.size, _SECTION.size):
        name, _, _, size, offset = _section(table, at)
        if name.startswith("/") and name[1:].isdecimal():  # more than 8 characters: in the table of strings
            name = window.text(strings + int(name[1:]), "section name")
        if offset:  # else it has no bytes, as .bss
            yield name, window.part(offset, size, "section")


class Import(msgspec.Struct, frozen=True):
    """A DLL that is needed, and the names taken from it; what is taken by number has no name."""

    dll: str
    names: tuple[str, ...]


class PeFile:
    """A PE image, read as far as it is asked.

    :raises IntegrityError: here, or from any property, for a file that is cut off or contradicts itself.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        (at,) = window.unpack(_U32, 60, "DOS header")
        if window.take(at, 4, "PE header") != b"PE\0\0":
            raise self._damaged("it has no PE header")
        machine, count, _, _, _, optional, _ = window.unpack(_COFF, at + 4, "COFF header")
        self.machine = COFF_MACHINES.get(machine, f"CPU {machine:#x}")
        if count > _SECTIONS_LIMIT:
            raise self._damaged(f"it has {count} sections")
        self._optional = window.part(at + 24, optional, "optional header")
        table = window.part(at + 24 + optional, count * _SECTION.size, "section table")
        self._table = tuple(_section(table, at) for at in range(0, table.size, _SECTION.size))
        for _, _, _, size, offset in self._table:
            window.part(offset, size, "section")

    @property
    def sections(self) -> tuple[tuple[str, Window], ...]:
        """Names, at most 8 characters long, and bytes of the sections."""
        return tuple((name, self._window.part(at, size, "section")) for name, _, _, size, at in self._table)

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
        raise self._damaged(f"it imports from more than {_DLLS_LIMIT} DLLs")

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
        for _, _, start, size, offset in self._table:
            if start <= address < start + size:
                return self._window.part(offset + address - start, size - (address - start), "section")
        raise self._damaged(f"no section has the address {address:#x}")

    def _damaged(self, what: str) -> IntegrityError:
        return IntegrityError(f"{self._window.name} is damaged: {what}.", hint=FETCH_AGAIN)


def _section(table: Window, at: int) -> tuple[str, int, int, int, int]:
    """Name, virtual size, address, bytes in the file and offset there."""
    name = table.take(at, 8, "section table").rstrip(b"\0").decode("latin-1")
    size, address, stored, offset = table.unpack(_SECTION, at, "section table")
    return name, size, address, stored, offset
