"""Names in object files made private, so that two libraries that define the same function do not meet in one program.

A static library has no hidden symbols: what its run time defines, ``cudaLaunchKernel`` among it, would be defined twice
in a program with a CUDA runtime of its own. Compilers choose those names, so they are changed in their objects. Layouts
are those of the System V ABI (``elf.h``) and of Microsoft's "PE Format" page.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
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
_COFF_HEADER = struct.Struct("<HHIIIHH")
_COFF_SYMBOL = struct.Struct("<IIIhHBB")
_COFF_SIZE = struct.Struct("<I")
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
    it is.

    :param data: an ELF object of 64 bits, little-endian, or a COFF object for x86-64.
    :param name: what errors call the file.
    :raises IntegrityError: when the file is neither, or its tables contradict it.
    """
    window = Window.of(data, name)
    if data[:6] == b"\x7fELF\x02\x01":
        return _rename_elf(window)
    if len(data) >= _COFF_HEADER.size and window.unpack(_COFF_HEADER, 0, "COFF header")[0] == _AMD64:
        return _rename_coff(window)
    raise IntegrityError(f"{name} is no object file that linkers for Linux or Windows take.")


class _Names:
    """A table of names that grows at its end: names that share their letters with others stay as they were."""

    def __init__(self, old: bytes, private: re.Pattern[str]) -> None:
        self.bytes = bytearray(old)
        self._private = private
        self._new: dict[str, int] = {}

    def renamed(self, name: str) -> int | None:
        """Where the private name for this one is in the table; ``None`` for a name that is not the runtime's."""
        if self._private.fullmatch(name) is None:
            return None
        if name not in self._new:
            self._new[name] = len(self.bytes)
            self.bytes += f"{_PREFIX}{name}".encode() + b"\0"
        return self._new[name]


def _rename_elf(window: Window) -> bytes:
    header = window.unpack(_ELF_HEADER, 0, "ELF header")
    start, size, count = header[5], header[10], header[11]
    if size != _ELF_SECTION.size:
        raise IntegrityError(f"{window.name} is damaged: a section header has {size} bytes.", hint=FETCH_AGAIN)
    count = count or window.unpack(_ELF_SECTION, start, "section headers")[5]  # more than 65279: number 0 has it
    table = window.part(start, count * size, "section headers")
    sections = [table.unpack(_ELF_SECTION, at, "section headers") for at in range(0, table.size, size)]
    changed = bytearray(window.take(0, window.size, "object"))
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        if section[6] >= count:
            raise IntegrityError(f"{window.name} is damaged: its symbols' names are in no section.", hint=FETCH_AGAIN)
        place = start + section[6] * size
        fields = list(sections[section[6]])
        old = window.part(fields[4], fields[5], "symbol names")
        names = _Names(old.take(0, old.size, "symbol names"), _RUNTIME_OF_ELF)
        window.part(section[4], section[5], "symbol table")
        for at in range(section[4], section[4] + section[5] - _ELF_SYMBOL.size + 1, _ELF_SYMBOL.size):
            symbol = window.unpack(_ELF_SYMBOL, at, "symbol table")
            where = names.renamed(old.text(symbol[0], "symbol names")) if symbol[0] else None
            if where is not None:
                _ELF_SYMBOL.pack_into(changed, at, where, *symbol[1:])
        if len(names.bytes) > old.size:  # the longer table lies behind everything else
            fields[4], fields[5] = len(changed), len(names.bytes)
            changed += names.bytes
            _ELF_SECTION.pack_into(changed, place, *fields)
    return bytes(changed)


def _rename_coff(window: Window) -> bytes:
    header = window.unpack(_COFF_HEADER, 0, "COFF header")
    start, count = header[3], header[4]
    end = start + count * _COFF_SYMBOL.size
    (size,) = window.unpack(_COFF_SIZE, end, "symbol names")
    old = window.part(end, size, "symbol names")
    names = _Names(old.take(0, size, "symbol names"), _RUNTIME)
    changed = bytearray(window.take(0, window.size, "object"))
    at = start
    while at < end:
        zero, where, _, _, _, _, more = window.unpack(_COFF_SYMBOL, at, "symbol table")
        # A name of up to eight letters is in the place of the number.
        name = window.take(at, 8, "symbol table").rstrip(b"\0").decode("latin-1") if zero else ""
        renamed = names.renamed(name or old.text(where, "symbol names"))
        if renamed is not None:
            struct.pack_into("<II", changed, at, 0, renamed)
        at += (1 + more) * _COFF_SYMBOL.size
    struct.pack_into("<I", names.bytes, 0, len(names.bytes))
    return bytes(changed[:end] + names.bytes + changed[end + size :])
