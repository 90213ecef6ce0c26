"""Archives that are small and want all of the disk, the memory or the time."""

import gzip
import io
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from flashdepot.binary.objects import read_members
from flashdepot.binary.window import Window
from flashdepot.files.archive import unpack
from support.tools import PEAK, run_program

BOMB = 1 << 29
ZEROS = bytes(1 << 20)


def compressed_zeros(size: int, before: bytes = b"") -> bytes:
    press = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(
        [press.compress(before), *(press.compress(ZEROS) for _ in range(size // len(ZEROS))), press.flush()]
    )


def header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def long_names_of_long_names(path: Path) -> None:
    one = header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 2) + b"a\0" + bytes(510)
    path.write_bytes(gzip.compress(one * 20_000))


def tar_bomb(path: Path) -> None:
    path.write_bytes(compressed_zeros(BOMB, header("zeros", tarfile.REGTYPE, BOMB)))


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("zeros", "w", force_zip64=True) as member:
        for _ in range(300):
            member.write(ZEROS)


def overlapping_zip_bomb(path: Path) -> None:
    """Many members that share the bytes of one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/0", bytes(1 << 22))
        first = file.filelist[0]
        for number in range(1, 1000):
            copy = zipfile.ZipInfo(f"a/{number}")
            for name in ("header_offset", "compress_type", "CRC", "compress_size", "file_size"):
                setattr(copy, name, getattr(first, name))
            file.filelist.append(copy)
            file.NameToInfo[copy.filename] = copy


def lzma_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("a", b"x")


MEASURE = f"""
import resource, sys
from pathlib import Path
from flashdepot.errors import FlashdepotError
from flashdepot.files.archive import unpack
try:
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
except FlashdepotError as error:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(error.exit_code, {PEAK}, usage.ru_oublock, error.message)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a process used is read in the units of Linux")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.tar.gz", long_names_of_long_names),
        ("a.tar.gz", tar_bomb),
        ("a.whl", zip_bomb),
        ("a.whl", overlapping_zip_bomb),
        ("a.whl", lzma_zip),
    ],
)
def test_an_archive_that_wants_too_much_is_refused_early(tmp_path, name, make) -> None:
    path = tmp_path / name
    make(path)
    said = run_program([sys.executable, "-c", MEASURE, str(path), str(tmp_path / "out")])
    code, kilobytes, blocks, message = said.split(" ", 3)
    assert code == "6"
    assert "a." in message
    assert int(kilobytes) < 100_000
    assert int(blocks) * 512 < 80 << 20
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ratio", [2, 20])
def test_an_honest_archive_of_the_same_size_is_unpacked(tmp_path, ratio) -> None:
    path = tmp_path / "honest.tar.gz"
    noise = __import__("random").Random(1).randbytes((1 << 20) // ratio)
    body = (noise + bytes((1 << 20) - len(noise))) * 70
    with tarfile.open(path, "w:gz", compresslevel=1) as file:
        info = tarfile.TarInfo("libflash.a")
        info.size = len(body)
        file.addfile(info, io.BytesIO(body))
    unpack(path, tmp_path / "out")
    assert (tmp_path / "out/libflash.a").stat().st_size == len(body)


def test_the_names_of_a_library_s_members_cost_no_more_than_they_are_long() -> None:
    """Each of 50,000 members points into a table of names without an end."""
    table = b"a" * (1 << 22)
    entry = b"/0".ljust(16) + bytes(32).replace(b"\0", b"0") + b"0".ljust(10) + b"`\n"
    names = b"//".ljust(16) + b" " * 32 + str(len(table)).encode().ljust(10) + b"`\n" + table
    window = Window.of(b"!<arch>\n" + names + entry * 50_000, "hostile.a")
    assert sum(len(member.name) for member in read_members(window)) == 50_000 * 4096
