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

from flashdepot.binary.window import FETCH_AGAIN, Window
from flashdepot.errors import IntegrityError

_RUNTIME = re.compile(r"(__)?cuda[A-Z]\w*")
_RUNTIME_OF_ELF = re.compile(r"(__)?cuda[A-Z]\w*|atexit")
"""With ``atexit``, of which the run time has its own; that of Windows is each library's own already."""
_PREFIX = "flashdepot_"

_ELF_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")
_ELF_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_SYMTAB = 2
_SHF_X86_64_LARGE = 0x10000000
_EM_X86_64 = 62
_COFF_HEADER = struct.Struct("<HHIIIHH")
_COFF_SYMBOL = struct.Struct("<IIIhHBB")
_COFF_SIZE = struct.Struct("<I")
_COFF_SECTION = struct.Struct("<8xIIIIIIHHI")
_COFF_FLAGS = struct.Struct("<I")
_COFF_EXTERNAL = (2, 105)
_COFF_WRITABLE = 0x80000000
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
    header = window.unpack(_COFF_HEADER, 0, "COFF header")
    start = _COFF_HEADER.size + header[5]
    for at in range(start, start + header[1] * _COFF_SECTION.size, _COFF_SECTION.size):
        title = window.take(at, 8, "section headers").rstrip(b"\0")
        *_, size, where, _, _, _, _, flags = window.unpack(_COFF_SECTION, at, "section headers")
        if title == b".ctors":
            changed[at : at + 8] = b".CRT$XCU"
            _COFF_FLAGS.pack_into(changed, at + _COFF_SECTION.size - _COFF_FLAGS.size, flags & ~_COFF_WRITABLE)
        elif title == b".drectve":
            changed[where : where + size] = b" " * len(window.take(where, size, "directives"))
    return bytes(changed)


def _is(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda name: pattern.fullmatch(name) is not None


def _is_elf(data: bytes, name: str) -> bool:
    if data[:6] == b"\x7fELF\x02\x01":
        return True
    if len(data) >= _COFF_HEADER.size and int.from_bytes(data[:2], "little") == _AMD64:
        return False
    raise IntegrityError(f"{name} is no object file that linkers for Linux or Windows take.")


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


def _elf_sections(window: Window) -> tuple[int, list[tuple[int, ...]]]:
    """Where the headers of the sections are, and what they say."""
    header = window.unpack(_ELF_HEADER, 0, "ELF header")
    start, size, count = header[5], header[10], header[11]
    if size != _ELF_SECTION.size:
        raise IntegrityError(f"{window.name} is damaged: a section header has {size} bytes.", hint=FETCH_AGAIN)
    count = count or window.unpack(_ELF_SECTION, start, "section headers")[5]  # more than 65279: number 0 has it
    table = window.part(start, count * size, "section headers")
    sections = [table.unpack(_ELF_SECTION, at, "section headers") for at in range(0, table.size, size)]
    if any(section[1] == _SHT_SYMTAB and section[6] >= count for section in sections):
        raise IntegrityError(f"{window.name} is damaged: its symbols' names are in no section.", hint=FETCH_AGAIN)
    return start, sections


def _elf_symbols_at(window: Window, section: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Where each symbol of a table is, and what it says."""
    window.part(section[4], section[5], "symbol table")
    for at in range(section[4], section[4] + section[5] - _ELF_SYMBOL.size + 1, _ELF_SYMBOL.size):
        yield at, window.unpack(_ELF_SYMBOL, at, "symbol table")


def _elf_symbols(window: Window) -> Iterator[tuple[str, bool]]:
    """The names that others see, and whether they are defined."""
    _, sections = _elf_sections(window)
    for section in sections:
        if section[1] == _SHT_SYMTAB:
            named = sections[section[6]]
            names = window.part(named[4], named[5], "symbol names")
            for _, symbol in _elf_symbols_at(window, section):
                if symbol[0] and symbol[1] >> 4:
                    yield names.text(symbol[0], "symbol names"), symbol[3] != 0


def _rename_elf(window: Window, private: Callable[[str], bool]) -> bytes:
    start, sections = _elf_sections(window)
    changed = bytearray(window.take(0, window.size, "object"))
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        fields = list(sections[section[6]])
        old = window.part(fields[4], fields[5], "symbol names")
        names = _Names(old.take(0, old.size, "symbol names"), private)
        for at, symbol in _elf_symbols_at(window, section):
            where = names.renamed(old.text(symbol[0], "symbol names")) if symbol[0] else None
            if where is not None:
                _ELF_SYMBOL.pack_into(changed, at, where, *symbol[1:])
        if len(names.bytes) > old.size:  # the longer table lies behind everything else
            fields[4], fields[5] = len(changed), len(names.bytes)
            changed += names.bytes
            _ELF_SECTION.pack_into(changed, start + section[6] * _ELF_SECTION.size, *fields)
    return bytes(changed)


def _with_ordinary_sections(window: Window) -> bytes:
    """An object for x86-64 whose sections lie among those of other objects.

    CuTe DSL's compiler marks its code as large, and lld, which Rust links with, puts such code before the table of stack
    frames. lld sorts that table as if all code lay behind it, so that a search in it misses functions: a panic or an
    exception of the program ends it then. What such code refers to by 64 bits may lie anywhere.
    """
    start, sections = _elf_sections(window)
    changed = bytearray(window.take(0, window.size, "object"))
    if window.unpack(_ELF_HEADER, 0, "ELF header")[1] == _EM_X86_64:
        for index, (name, kind, flags, *rest) in enumerate(sections):
            if flags & _SHF_X86_64_LARGE:
                place = start + index * _ELF_SECTION.size
                _ELF_SECTION.pack_into(changed, place, name, kind, flags & ~_SHF_X86_64_LARGE, *rest)
    return bytes(changed)


def _coff_names(window: Window) -> tuple[int, Window]:
    """Where the symbols begin and end, and their longer names behind them."""
    header = window.unpack(_COFF_HEADER, 0, "COFF header")
    end = header[3] + header[4] * _COFF_SYMBOL.size
    (size,) = window.unpack(_COFF_SIZE, end, "symbol names")
    return header[3], window.part(end, size, "symbol names")


def _coff_symbols_at(window: Window) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Where each symbol is, its name, and what it says."""
    at, old = _coff_names(window)
    end = at + window.unpack(_COFF_HEADER, 0, "COFF header")[4] * _COFF_SYMBOL.size
    while at < end:
        symbol = window.unpack(_COFF_SYMBOL, at, "symbol table")
        # A name of up to eight letters is in the place of the number.
        name = window.take(at, 8, "symbol table").rstrip(b"\0").decode("latin-1") if symbol[0] else ""
        yield at, name or old.text(symbol[1], "symbol names"), symbol
        at += (1 + symbol[6]) * _COFF_SYMBOL.size


def _coff_symbols(window: Window) -> Iterator[tuple[str, bool]]:
    """The names that others see, and whether they are defined. One without a section and with a size is in no file."""
    for _, name, symbol in _coff_symbols_at(window):
        if symbol[5] in _COFF_EXTERNAL:
            yield name, symbol[3] != 0 or symbol[2] != 0


def _rename_coff(window: Window, private: Callable[[str], bool]) -> bytes:
    start, old = _coff_names(window)
    end = start + window.unpack(_COFF_HEADER, 0, "COFF header")[4] * _COFF_SYMBOL.size
    names = _Names(old.take(0, old.size, "symbol names"), private)
    changed = bytearray(window.take(0, window.size, "object"))
    for at, name, _ in _coff_symbols_at(window):
        renamed = names.renamed(name)
        if renamed is not None:
            struct.pack_into("<II", changed, at, 0, renamed)
    struct.pack_into("<I", names.bytes, 0, len(names.bytes))
    return bytes(changed[:end] + names.bytes + changed[end + old.size :])
