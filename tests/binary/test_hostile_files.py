"""Readers are given broken files: they answer, or raise IntegrityError; nothing else, and not for long."""

from __future__ import annotations

import os
import struct
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashdepot.binary.coff import PeFile
from flashdepot.binary.elf import ElfFile
from flashdepot.binary.fatbin import read_fatbins
from flashdepot.binary.window import Window
from flashdepot.diagnose.check.subject import read_subject
from flashdepot.errors import IntegrityError
from support import forge

LENIENT = settings(
    deadline=timedelta(seconds=5),
    max_examples=int(os.environ.get("FLASHDEPOT_FUZZ_EXAMPLES", "150")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
SUFFIXES = [".so", ".o", ".a", ".dll", ".whl", ".bin"]
INTERESTING = [0, 1, 7, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1]
CHANGE = st.tuples(
    st.one_of(st.integers(0, 255), st.integers(0, 4095), st.integers(0, 1 << 20)),  # headers are near the ends
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
    st.one_of(st.sampled_from(INTERESTING), st.integers(0, 1 << 64)),
)


class Seeds(dict[str, bytes]):
    def __repr__(self) -> str:
        return "seeds"


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Seeds:
    """One whole file of each kind, by the suffix of its name."""
    folder = tmp_path_factory.mktemp("seeds")
    gpu = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 90, forge.EXACT, header=80))
    library = forge.library_with_gpu_code(
        folder, gpu, source="extern int _ZN3c104cuda9SetDeviceEa(int); int h(void){return _ZN3c104cuda9SetDeviceEa(1);}"
    )
    unit = forge.object_file(
        folder, "int a_name_longer_than_sixteen(void) { return 1; }", "a_name_longer_than_sixteen.o"
    )
    static = forge.archive(folder, unit)
    windows = forge.windows_library(imports={"c10.dll": ["a", "b"], "KERNEL32.dll": ["c"]}, gpu=gpu)
    wheel = forge.wheel(folder, {"flash_attn/_C.so": library.read_bytes(), "flash_attn/__init__.py": b""})
    whole = {
        ".so": library.read_bytes(),
        ".o": unit.read_bytes(),
        ".a": static.read_bytes(),
        ".dll": windows,
        ".whl": wheel.read_bytes(),
        ".bin": gpu,
    }
    return Seeds(whole)


def read_all(data: bytes, suffix: str, folder: Path) -> None:
    """Everything that the readers can be asked."""
    try:
        if suffix == ".bin":
            list(read_fatbins(Window.of(data, "section")))
            return
        if suffix == ".so" and data[:4] == b"\x7fELF":
            elf = ElfFile(Window.of(data, "lib.so"))
            if elf.readable:
                _ = (list(elf.symbols()), elf.sections, elf.soname, elf.run_paths, elf.version_needs)
                _ = elf.version_definitions
        if suffix == ".dll" and data[:2] == b"MZ":
            _ = PeFile(Window.of(data, "lib.dll")).exported
        path = folder / f"flash_attn-2.8.3-cp311-cp311-linux_x86_64{suffix}"
        path.write_bytes(data)
        read_subject(path)
    except IntegrityError:
        return


@LENIENT
@given(suffix=st.sampled_from(SUFFIXES), changes=st.lists(CHANGE, min_size=1, max_size=6))
def test_a_file_with_changed_bytes_is_read_or_called_damaged(
    suffix: str, changes: list[tuple[int, int, bool, int]], seeds: Seeds, tmp_path: Path
) -> None:
    mutable = bytearray(seeds[suffix])
    for place, size, from_end, value in changes:
        at = place % (len(mutable) - size)
        at = len(mutable) - size - at if from_end else at
        mutable[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    read_all(bytes(mutable), suffix, tmp_path)


@LENIENT
@given(
    suffix=st.sampled_from(SUFFIXES),
    begin=st.integers(0, 1 << 20),
    lost=st.integers(0, 1 << 20),
    gained=st.binary(max_size=64),
)
def test_a_file_that_lost_or_gained_a_piece_is_read_or_called_damaged(
    suffix: str, begin: int, lost: int, gained: bytes, seeds: Seeds, tmp_path: Path
) -> None:
    whole = seeds[suffix]
    begin %= len(whole) + 1
    read_all(whole[:begin] + gained + whole[begin + lost % len(whole) :], suffix, tmp_path)


@LENIENT
@given(
    head=st.sampled_from(
        [b"", b"\x7fELF\x02\x01\x01", b"MZ", b"!<arch>\n", b"PK\x03\x04", b"version https://git-lfs", b"<html"]
    ),
    tail=st.binary(max_size=400),
)
def test_any_bytes_behind_any_magic_are_read_or_called_damaged(head: bytes, tail: bytes, tmp_path: Path) -> None:
    for suffix in (".so", ".dll", ".whl"):
        read_all(head + tail, suffix, tmp_path)
    read_all(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(tail)) + tail, ".bin", tmp_path)
