import errno
import gzip
import io
import os
import stat
import tarfile
import zipfile

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.files import archive
from flashdepot.files.archive import unpack

BODY = b"int main() {}\n" * 100


def member(name, data=BODY, **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as file:
        for info, data in members:
            file.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return path


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def everything_in(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


def assert_refused(path, tmp_path, match):
    before = everything_in(tmp_path)
    with pytest.raises(IntegrityError, match=match) as caught:
        unpack(path, tmp_path / "out")
    assert path.name in caught.value.message
    assert everything_in(tmp_path) == before


def test_a_tar_is_unpacked_with_what_is_asked_for(tmp_path):
    path = make_tar(
        tmp_path / "a.tar.gz",
        [member("top", b"", type=tarfile.DIRTYPE), member("top/a.cu"), member("top/run", mode=0o755), member("top/no")],
    )
    unpack(path, tmp_path / "out", keep=lambda name: name != "top/no")
    assert everything_in(tmp_path / "out") == ["top", "top/a.cu", "top/run"]
    assert (tmp_path / "out/top/a.cu").read_bytes() == BODY
    assert os.name == "nt" or stat.S_IMODE((tmp_path / "out/top/a.cu").stat().st_mode) == 0o644
    assert os.name == "nt" or stat.S_IMODE((tmp_path / "out/top/run").stat().st_mode) == 0o755


def test_a_wheel_is_unpacked(tmp_path):
    path = make_zip(tmp_path / "a.whl", [("bin/nvcc", BODY, stat.S_IFREG | 0o755), ("x.h", BODY, 0)])
    unpack(path, tmp_path / "out")
    assert everything_in(tmp_path / "out") == ["bin", "bin/nvcc", "x.h"]
    assert os.name == "nt" or (tmp_path / "out/bin/nvcc").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("hostile", "match"),
    [
        (member("../outside"), "points outside"),
        (member("a/../../outside"), "points outside"),
        (member("/outside"), "points outside"),
        (member("..\\outside"), "points outside"),
        (member("link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "'link' is a link or a special file"),
        (member("link", b"", type=tarfile.LNKTYPE, linkname="good"), "is a link"),
        (member("dev", b"", type=tarfile.CHRTYPE), "special file"),
        (member("pipe", b"", type=tarfile.FIFOTYPE), "special file"),
        (member("good"), "'good' has the name of another"),
        (member("good/below"), "has the name of another"),
    ],
    ids=lambda value: value[0].name if isinstance(value, tuple) else "",
)
def test_a_hostile_tar_is_refused_and_nothing_is_left(tmp_path, hostile, match):
    assert_refused(make_tar(tmp_path / "a.tar.gz", [member("good"), hostile]), tmp_path, match)


@pytest.mark.parametrize(
    ("name", "mode", "match"),
    [
        ("../outside", 0, "points outside"),
        ("/outside", 0, "points outside"),
        ("a\\..\\..\\outside", 0, "points outside"),
        ("link", stat.S_IFLNK | 0o777, "is a link"),
        ("pipe", stat.S_IFIFO | 0o644, "special file"),
    ],
)
def test_a_hostile_zip_is_refused_and_nothing_is_left(tmp_path, name, mode, match):
    assert_refused(make_zip(tmp_path / "a.zip", [("good", BODY, 0), (name, BODY, mode)]), tmp_path, match)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_a_name_twice_is_refused(tmp_path):
    assert_refused(make_zip(tmp_path / "a.zip", [("good", BODY, 0), ("good", b"other", 0)]), tmp_path, "another one")


@pytest.mark.parametrize("name", ["kept", "skipped"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_bomb_is_refused_also_in_what_is_skipped(tmp_path, monkeypatch, kind, name):
    monkeypatch.setattr(archive, "_SIZE_LIMIT", 1 << 20)
    zeros = bytes(2 << 20)
    if kind == "tar":
        path = make_tar(tmp_path / "a.tar.gz", [member(name, zeros)])
    else:
        path = make_zip(tmp_path / "a.zip", [(name, zeros, 0)])
    with pytest.raises(IntegrityError, match="unpack to"):
        unpack(path, tmp_path / "out", keep=lambda n: n == "kept")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cut", [40, 200, "half"])
def test_a_truncated_tar_is_damaged(tmp_path, cut):
    path = make_tar(tmp_path / "a.tar.gz", [member(f"{n}.cu") for n in range(20)])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if cut == "half" else data[:-cut])
    assert_refused(path, tmp_path, "is damaged")


def flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flipped,
        lambda data: gzip.compress(gzip.decompress(data)[:1024])[:-8],
        lambda _data: gzip.compress(member("a.cu", bytes(1 << 20))[0].tobuf() + BODY),
    ],
    ids=["a flipped bit", "an end between two entries", "a header that promises more than there is"],
)
def test_a_damaged_tar_is_noticed(tmp_path, damage):
    path = make_tar(tmp_path / "a.tar.gz", [member("a.cu", bytes(range(256)) * 2), member("b.cu", bytes(512))])
    path.write_bytes(damage(path.read_bytes()))
    assert_refused(path, tmp_path, "is damaged")


@pytest.mark.parametrize("place", ["first byte of the compressed data", "its middle"])
def test_a_flipped_byte_in_a_zip_is_noticed(tmp_path, place):
    path = make_zip(tmp_path / "a.zip", [("a.cu", bytes(range(256)) * 40, 0)])
    data = bytearray(path.read_bytes())
    start = 30 + len("a.cu")  # the local file header, then the name
    if place.startswith("first"):
        data[start] = 0xFF  # a kind of block that deflate does not have
    else:
        data[start + 30] ^= 0xFF
    path.write_bytes(data)
    assert_refused(path, tmp_path, "is damaged")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x1f\x8b\x08"])
def test_something_else_under_the_name_of_an_archive_is_damaged(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert_refused(tmp_path / name, tmp_path, "is damaged")


def test_a_full_disk_is_not_called_a_damaged_archive(tmp_path, monkeypatch):
    path = make_zip(tmp_path / "a.whl", [("x.h", BODY, 0)])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive, "_unpack", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_encrypted_zip_is_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", [("a.cu", BODY, 0)])
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    data[6] |= 1
    data[central + 8] |= 1
    path.write_bytes(data)
    assert_refused(path, tmp_path, "encrypted")


def test_a_truncated_tar_of_xz_is_damaged(tmp_path):
    path = tmp_path / "a.tar.xz"
    with tarfile.open(path, "w:xz") as file:
        file.addfile(tarfile.TarInfo("good"), io.BytesIO())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 5])
    assert_refused(path, tmp_path, "damaged")


def test_a_link_that_is_not_wanted_can_be_skipped_and_one_that_is_cannot(tmp_path):
    link = member("lib/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    path = make_tar(tmp_path / "a.tar.gz", [member("bin/run"), link])
    unpack(path, tmp_path / "out", keep=lambda name: name.startswith("bin/"), skip_links=True)
    assert [p.name for p in (tmp_path / "out").rglob("*")] == ["bin", "run"]
    with pytest.raises(IntegrityError, match="'lib/link' is a link"):
        unpack(path, tmp_path / "all", skip_links=True)


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.REGTYPE])
def test_an_archive_of_too_many_entries_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archive, "_ENTRY_LIMIT", 3)
    members = [member(name, b"", type=kind) for name in "abcd"]
    unpack(make_tar(tmp_path / "three.tar.gz", members[:3]), tmp_path / "three")
    assert_refused(make_tar(tmp_path / "four.tar.gz", members), tmp_path, "more than 3 entries")
