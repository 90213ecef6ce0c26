"""What an ELF file exports and needs, for 64-bit little-endian files.

Written out here rather than left to a library: the files are other people's, up to gigabytes, and may be hostile. This
reader maps them and checks every offset (of torch's 1 GB ``libtorch_cuda.so`` it touches only the tables; lief 1.0
reads all of it into memory first). Layouts are those of the System V ABI
(``elf.h``); versions of symbols those of the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path

import msgspec

from flashdepot.binary.window import ELF_MACHINES, NameBudget, Window, open_window
from flashdepot.errors import IntegrityError, MissingToolError
from flashdepot.model.target import Version

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<QQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_VERDAUX = struct.Struct("<II")

_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_SYMTAB, _SHT_NOBITS, _SHT_DYNSYM = 2, 8, 11
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_RPATH, _DT_RUNPATH = 1, 5, 6, 10, 15, 29
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_LOCAL, _WEAK = 0, 2
_SHN_ABS = 0xFFF1
_VISIBLE = {0, 3}  # default, protected
_MANY = 1 << 16
_NAME_MAX = 255
_SYMBOLS_LIMIT = 8 << 20


class Section(msgspec.Struct, frozen=True):
    """A section by its name, with its bytes."""

    name: str
    kind: int
    window: Window


class Symbol(msgspec.Struct, frozen=True):
    """A symbol of the dynamic table, or of an object's table."""

    name: str
    defined: bool
    weak: bool
    exported: bool


class ElfFile:
    """An ELF file, read as far as it is asked."""

    def __init__(self, window: Window) -> None:
        self._window = window
        head = window.take(0, 20, "ELF header")
        if not head.startswith(b"\x7fELF"):
            raise IntegrityError(f"{window.name} is not an ELF file.")
        order = ">" if head[5] == 2 else "<"  # noqa: PLR2004  (ELFDATA2MSB)
        number = struct.unpack_from(order + "H", head, 18)[0]
        self.machine = ELF_MACHINES.get(number, f"CPU {number}")
        self.readable = head[4] == 2 and head[5] == 1  # noqa: PLR2004  (64 bits, little-endian)
        self._programs: tuple[tuple[int, ...], ...] = ()
        self.headers: tuple[tuple[int, ...], ...] = ()
        """The section headers as they are in the file, from ``headers_at`` on."""
        self.headers_at = 0
        self._names_index = 0
        if self.readable:
            self._read_headers()

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Every section that has bytes in the file."""
        names = self.bytes_of(self.headers[self._names_index]) if self.headers else None
        if names is None:
            return ()
        budget = NameBudget(names, "section names")
        found = []
        for header in self.headers:
            if header[1] in {0, _SHT_NOBITS}:
                continue
            name = budget.spend(names.text(header[0], "section names"))
            found.append(Section(name, header[1], self.bytes_of(header)))
        return tuple(found)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Sonames that it needs, in the order in which the loader looks for them."""
        return self._dynamic_texts(_DT_NEEDED)

    @property
    def run_paths(self) -> tuple[str, ...]:
        """Folders of ``DT_RUNPATH``, or of ``DT_RPATH`` where there is none."""
        texts = self._dynamic_texts(_DT_RUNPATH) or self._dynamic_texts(_DT_RPATH)
        return tuple(path for text in texts for path in text.split(":") if path)

    @cached_property
    def version_needs(self) -> tuple[str, ...]:
        """Symbol versions that it asks of others: ``GLIBC_2.17``, ``GLIBCXX_3.4.21``."""
        return tuple(self._versions(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED, _VERNAUX))

    @cached_property
    def version_definitions(self) -> tuple[str, ...]:
        """Symbol versions that it offers, its own name first."""
        return tuple(self._versions(_DT_VERDEF, _DT_VERDEFNUM, _VERDEF, _VERDAUX))

    def symbols(self) -> Iterator[Symbol]:
        """The dynamic symbols, or an object's symbols, without local ones."""
        table = self._symbol_table()
        if table is None:
            return
        entries, names = table
        if entries.size > _SYMBOLS_LIMIT * SYMBOL.size:
            raise self._window.damaged(f"its symbol table has {entries.size} bytes")
        budget = NameBudget(names, "symbol names")
        for at in range(0, entries.size - SYMBOL.size + 1, SYMBOL.size):
            offset, info, other, section, value, _ = entries.unpack(SYMBOL, at, "symbol table")
            if info >> 4 == _LOCAL or offset == 0:
                continue
            name = budget.spend(names.text(offset, "symbol names"))
            defined = section != 0
            names_a_version = section == _SHN_ABS and value == 0  # GNU ld adds one for each version it defines
            exported = defined and not names_a_version and other & 3 in _VISIBLE
            yield Symbol(name, defined, info >> 4 == _WEAK, exported)

    def _read_headers(self) -> None:
        window = self._window
        header = window.unpack(_HEADER, 0, "ELF header")
        phoff, shoff, phsize, phnum, shsize, shnum, self._names_index = (*header[4:6], *header[8:13])
        self.headers_at = shoff
        if shoff:
            if shsize != SECTION.size:
                raise self._window.damaged(f"a section header has {shsize} bytes")
            first = window.unpack(SECTION, shoff, "section headers")
            shnum = shnum or first[5]  # more than 65279 sections: the System V ABI keeps the numbers in section 0
            if self._names_index == 0xFFFF:  # noqa: PLR2004
                self._names_index = first[6]
            table = window.part(shoff, shnum * shsize, "section headers")
            if shnum > 16 * _MANY or self._names_index >= max(shnum, 1):
                raise self._window.damaged(f"it has {shnum} sections and their names in section {self._names_index}")
            self.headers = tuple(
                table.unpack(SECTION, at, "section headers") for at in range(0, table.size, SECTION.size)
            )
        if phnum:
            if phsize != _PROGRAM.size:
                raise self._window.damaged(f"a program header has {phsize} bytes")
            table = window.part(phoff, phnum * phsize, "program headers")
            self._programs = tuple(
                table.unpack(_PROGRAM, at, "program headers") for at in range(0, table.size, _PROGRAM.size)
            )
        for program in self._programs:
            if program[0] == _PT_LOAD:
                window.part(program[2], program[5], "segment")
        for section in self.headers:
            if section[1] not in {0, _SHT_NOBITS}:
                self.bytes_of(section)

    def bytes_of(self, header: tuple[int, ...]) -> Window:
        """What a section has in the file."""
        return self._window.part(header[4], header[5], "section")

    def names_of(self, header: tuple[int, ...]) -> Window:
        """The names of a table of symbols."""
        if header[6] >= len(self.headers):
            raise self._window.damaged("its symbols' names are in no section")
        return self.bytes_of(self.headers[header[6]])

    @cached_property
    def _dynamic(self) -> tuple[tuple[int, int], ...]:
        program = next((p for p in self._programs if p[0] == _PT_DYNAMIC), None)
        if program is None:
            return ()
        table = self._window.part(program[2], program[5], "dynamic section")
        entries = []
        for at in range(0, min(table.size, _MANY) - _DYNAMIC.size + 1, _DYNAMIC.size):
            tag, value = table.unpack(_DYNAMIC, at, "dynamic section")
            if tag == 0:
                break
            entries.append((tag, value))
        return tuple(entries)

    def _dynamic_value(self, tag: int) -> int | None:
        return next((value for key, value in self._dynamic if key == tag), None)

    def _dynamic_texts(self, tag: int) -> tuple[str, ...]:
        names = self._dynamic_names
        if names is None:
            return ()
        budget = NameBudget(names, "dynamic names")
        texts = tuple(budget.spend(names.text(value, "dynamic names")) for key, value in self._dynamic if key == tag)
        if any(len(part) > _NAME_MAX for text in texts for part in re.split("[/:]", text)):
            raise self._window.damaged("a file's name in it is longer than a name can be")
        return texts

    @cached_property
    def _dynamic_names(self) -> Window | None:
        address, size = self._dynamic_value(_DT_STRTAB), self._dynamic_value(_DT_STRSZ)
        return None if address is None or size is None else self._at_address(address).part(0, size, "dynamic names")

    def _at_address(self, address: int) -> Window:
        for kind, _, offset, start, _, size, _, _ in self._programs:
            if kind == _PT_LOAD and start <= address < start + size:
                return self._window.part(offset + address - start, size - (address - start), "segment")
        raise self._window.damaged(f"no segment has the address {address:#x}")

    def _symbol_table(self) -> tuple[Window, Window] | None:
        for wanted in (_SHT_DYNSYM, _SHT_SYMTAB):
            for header in self.headers:
                if header[1] == wanted:
                    return self.bytes_of(header), self.names_of(header)
            if wanted == _SHT_DYNSYM and (table := self._stripped_symbol_table()) is not None:
                return table
        return None

    def _stripped_symbol_table(self) -> tuple[Window, Window] | None:
        """The dynamic symbols of a file without section headers: linkers put the names right after them."""
        symbols, names = self._dynamic_value(_DT_SYMTAB), self._dynamic_value(_DT_STRTAB)
        if self.headers or symbols is None or names is None or self._dynamic_names is None or names < symbols:
            return None
        return self._at_address(symbols).part(0, names - symbols, "symbol table"), self._dynamic_names

    def _versions(self, tag: int, count_tag: int, head: struct.Struct, item: struct.Struct) -> Iterator[str]:
        """Walk ``Verneed`` or ``Verdef`` records; each has its own chain of names."""
        address, count = self._dynamic_value(tag), self._dynamic_value(count_tag)
        if address is None or count is None or (names := self._dynamic_names) is None:
            return
        table = self._at_address(address)
        budget = NameBudget(names, "symbol versions")
        at, left = 0, _MANY
        for _ in range(min(count, _MANY)):
            record = table.unpack(head, at, "symbol versions")
            items, first, step = (record[1], record[3], record[4]) if head is _VERNEED else record[3:4] + record[5:7]
            inner = at + first
            for _ in range(items):
                if (left := left - 1) < 0:
                    raise self._window.damaged("its symbol versions do not end")
                entry = table.unpack(item, inner, "symbol versions")
                yield budget.spend(names.text(entry[3] if item is _VERNAUX else entry[0], "symbol versions"))
                inner += entry[-1]
                if entry[-1] == 0:
                    break
            if step == 0:
                return
            at += step


class SharedLibrary(msgspec.Struct, frozen=True):
    """``exported`` symbols without their version, ``needed`` sonames, and the newest ``GLIBC_*`` version it asks for."""

    exported: frozenset[str]
    needed: frozenset[str]
    libc_floor: Version | None


def read_shared_library(path: Path) -> SharedLibrary:
    """Read a shared library without loading it."""
    with open_window(path, str(path)) as window:
        elf = ElfFile(window)
        return SharedLibrary(
            exported=frozenset(symbol.name for symbol in elf.symbols() if symbol.exported),
            needed=frozenset(elf.needed),
            libc_floor=version_floor(elf.version_needs, "GLIBC"),
        )


def undefined_symbols(path: Path) -> frozenset[str]:
    """The names that an object file leaves to others to define."""
    with open_window(path, str(path)) as window:
        return frozenset(symbol.name for symbol in ElfFile(window).symbols() if not symbol.defined)


def version_floor(names: tuple[str, ...], prefix: str) -> Version | None:
    """The newest ``PREFIX_1.2.3`` among symbol versions; ``None`` where there is none."""
    matches = (re.fullmatch(rf"{prefix}_(\d{{1,6}}(?:\.\d{{1,6}}){{0,4}})", name) for name in names)
    return max((Version.parse(match[1]) for match in matches if match), default=None)


def demangled(name: str) -> str:
    """What a name of C++ stands for, by the Itanium ABI; empty for another name.

    :raises MissingToolError: on a machine without the C++ library that reads it.
    """
    from ctypes import byref, c_int  # noqa: PLC0415  (few files have names to show)

    text: bytes | None = _demangler()(name.encode(), None, None, byref(c_int()))
    return text.decode() if text else ""  # the few bytes stay allocated


@cache
def _demangler() -> Callable[..., bytes | None]:
    from ctypes import CDLL, c_char_p  # noqa: PLC0415

    try:
        demangle = CDLL("libstdc++.so.6")["__cxa_demangle"]
    except OSError as error:
        raise MissingToolError(
            f"C++ names cannot be read here: {error}.", hint="Install the C++ library: apt install libstdc++6"
        ) from error
    demangle.restype = c_char_p
    return demangle
