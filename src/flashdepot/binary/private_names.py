"""Names in object files made private, so that two libraries that define the same function do not meet in one program.

A static library has no hidden symbols: what its run time defines, ``cudaLaunchKernel`` among it, would be defined twice
in a program with a CUDA runtime of its own. Compilers choose those names, so they are changed in their objects. Layouts
are those of the System V ABI (``elf.h``) and of Microsoft's "PE Format" page.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from flashdepot.binary.coff import SECTION_FLAGS, CoffFile
from flashdepot.binary.elf import SECTION, SYMBOL, ElfFile
from flashdepot.binary.window import Window
from flashdepot.errors import IntegrityError

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
    :raises IntegrityError: when the file is neither, or its tables contradict it.
    """
    if _is_elf(data, name):
        renamed = _rename_elf(Window.of(data, name), _is(_RUNTIME_OF_ELF))
        return _with_ordinary_sections(Window.of(renamed, name))
    return _rename_coff(Window.of(data, name), _is(_RUNTIME))


def with_private_names(data: bytes, name: str, private: AbstractSet[str]) -> bytes:
    """The bytes of an object file in which these names, defined or not, are private ones; otherwise as above."""
    rename = _rename_elf if _is_elf(data, name) else _rename_coff
    return rename(Window.of(data, name), private.__contains__)


def defined_names(data: bytes, name: str) -> frozenset[str]:
    """The names that an object file defines for others; raises as :func:`with_private_runtime`."""
    symbols = _elf_symbols if _is_elf(data, name) else _coff_symbols
    return frozenset(found for found, is_defined in symbols(Window.of(data, name)) if is_defined)


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


def _is(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda name: pattern.fullmatch(name) is not None


def _is_elf(data: bytes, name: str) -> bool:
    if data[:6] == b"\x7fELF\x02\x01":
        return True
    if int.from_bytes(data[:2], "little") == _AMD64:
        return False
    raise IntegrityError(f"{name} is not an object file that linkers for Linux or Windows take.")


class _Names:
    """A table of names that grows at its end: names that share their letters with others stay as they were."""

    def __init__(self, old: bytes, private: Callable[[str], bool]) -> None:
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


def _elf_symbols(window: Window) -> Iterator[tuple[str, bool]]:
    """The names that others see, and whether they are defined."""
    return ((name, symbol[3] != 0) for _, _, symbol, name in _elf_symbols_at(ElfFile(window)) if symbol[1] >> 4)


def _rename_elf(window: Window, private: Callable[[str], bool]) -> bytes:
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
        if len(names.bytes) > fields[5]:  # the longer table is behind everything else
            fields[4], fields[5] = len(changed), len(names.bytes)
            changed += names.bytes
            SECTION.pack_into(changed, elf.headers_at + named * SECTION.size, *fields)
    return bytes(changed)


def _with_ordinary_sections(window: Window) -> bytes:
    """An object for x86-64 whose sections lie among those of other objects.

    CuTe DSL's compiler marks its code as large, and lld, which Rust links with, puts such code before the table of stack
    frames. lld sorts that table as if all code lay behind it, so that a search in it misses functions: a panic or an
    exception of the program ends it then. What such code refers to by 64 bits may lie anywhere.
    """
    elf = ElfFile(window)
    changed = bytearray(window.take(0, window.size, "object"))
    for index, (name, kind, flags, *rest) in enumerate(elf.headers if elf.machine == "x86_64" else ()):
        if flags & _SHF_X86_64_LARGE:
            place = elf.headers_at + index * SECTION.size
            SECTION.pack_into(changed, place, name, kind, flags & ~_SHF_X86_64_LARGE, *rest)
    return bytes(changed)


def _coff_symbols(window: Window) -> Iterator[tuple[str, bool]]:
    """The names that others see, and whether they are defined."""
    return ((symbol.name, symbol.defined) for symbol in CoffFile(window).symbols() if symbol.external)


def _rename_coff(window: Window, private: Callable[[str], bool]) -> bytes:
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
