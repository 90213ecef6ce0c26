"""Libraries whose names are longer than those of files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flashdepot.binary.elf import ElfFile
from flashdepot.binary.window import Window
from flashdepot.errors import IntegrityError
from support import forge


def with_needed(folder: Path, letters: int) -> Window:
    """A library that needs one of so long a name."""
    path = forge.shared_library(folder, "int f(void) { return 1; }", "-Wl,--no-as-needed", "-lm")
    data = bytearray(path.read_bytes())
    elf = ElfFile(Window.of(bytes(data), "lib.so"))
    names = next(section for section in elf.sections if section.name == ".dynstr").window
    assert elf.needed
    long = len(data)
    data += b"\0" + b"A" * letters + b"\0"
    program = next(p for p in elf._programs if p[0] == 2)
    at, size = program[2], program[5]
    entries = [struct.unpack_from("<QQ", data, at + i) for i in range(0, size, 16)]
    for i, (tag, _) in enumerate(entries):
        if tag == 1:
            struct.pack_into("<QQ", data, at + 16 * i, 1, long - names.start + 1)
        if tag == 10:
            struct.pack_into("<QQ", data, at + 16 * i, 10, letters + 2 + long - names.start)
    # The segment with the names reaches to the end of the file.
    header = struct.unpack_from("<Q", data, 32)[0]
    for i in range(struct.unpack_from("<H", data, 56)[0]):
        kind, _, offset, *_ = struct.unpack_from("<IIQQQQQQ", data, header + 56 * i)
        if kind == 1 and offset <= names.start:
            struct.pack_into("<QQ", data, header + 56 * i + 32, len(data) - offset, len(data) - offset)
    return Window.of(bytes(data), "lib.so")


def test_a_name_that_no_file_can_have_is_damage(tmp_path: Path) -> None:
    assert ElfFile(with_needed(tmp_path, 200)).needed[0] == "A" * 200
    with pytest.raises(IntegrityError, match="more letters than a file can have"):
        _ = ElfFile(with_needed(tmp_path, 5000)).needed
