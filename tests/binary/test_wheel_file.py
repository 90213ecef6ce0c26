from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from flashdepot.binary.wheel import WheelFacts, read_wheel
from flashdepot.errors import IntegrityError
from support import forge

FILES = {"flash_attn/__init__.py": b"", "flash_attn/_C.so": b"\x7fELF and more"}


def read(path: Path) -> WheelFacts:
    return read_wheel(path, lambda _name, _copy: None)


def test_a_whole_wheel_has_no_problems_and_hands_over_its_compiled_files(tmp_path: Path) -> None:
    seen = {}
    facts = read_wheel(forge.wheel(tmp_path, FILES), lambda name, copy: seen.update({name: copy.read_bytes()}))
    assert facts.problems == ()
    assert (facts.name, facts.version) == ("flash_attn", "2.8.3")
    assert seen == {"flash_attn/_C.so": b"\x7fELF and more"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"recorded": {"flash_attn/_C.so": b"other"}}, "'flash_attn/_C.so' is not the file that RECORD lists"),
        ({"recorded": {"flash_attn/gone.py": b""}}, "RECORD lists 'flash_attn/gone.py', which is not in it"),
        ({"metadata_version": "2.8.2"}, "says version 2.8.3 and its METADATA '2.8.2'"),
    ],
)
def test_what_contradicts_itself_in_a_wheel_is_named(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    (found,) = read(forge.wheel(tmp_path, FILES, **change)).problems  # type: ignore[arg-type]
    assert problem in found


def sha(name: str, data: bytes) -> str:
    return f"{name}=" + base64.urlsafe_b64encode(hashlib.new(name, data).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{},,", "RECORD has no digest for 'flash_attn/_C.so'"),
        ("{}", "RECORD has no digest for 'flash_attn/_C.so'"),
        ("{},md5=AAAA,13", "RECORD has only its md5 for 'flash_attn/_C.so'"),
        ("{}," + sha("md5", FILES["flash_attn/_C.so"]) + ",13", "must have its SHA-256 or better"),
        ("{}," + sha("sha512", b"other") + ",13", "their SHA-512 differ"),
        ("{}," + sha("sha256", FILES["flash_attn/_C.so"]) + ",14", "has 13 bytes, and RECORD says 14"),
        (
            "{0}," + sha("sha256", FILES["flash_attn/_C.so"]) + ",13\n{0}," + sha("sha256", b"other") + ",",
            "says two things",
        ),
    ],
)
def test_a_file_without_a_digest_that_can_be_relied_on_is_named(tmp_path: Path, row: str, problem: str) -> None:
    path = forge.wheel(tmp_path, FILES, row={"flash_attn/_C.so": row.format("flash_attn/_C.so")})
    (found,) = read(path).problems
    assert problem in found


@pytest.mark.parametrize("name", ["sha256", "sha384", "sha512"])
def test_a_digest_of_any_strong_kind_will_do(tmp_path: Path, name: str) -> None:
    row = f"flash_attn/_C.so,{sha(name, FILES['flash_attn/_C.so'])},"
    assert read(forge.wheel(tmp_path, FILES, row={"flash_attn/_C.so": row})).problems == ()


def test_a_member_that_record_does_not_list_is_named(tmp_path: Path) -> None:
    path = forge.wheel(tmp_path, FILES)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("flash_attn/extra.py", "")
    assert read(path).problems == ("'flash_attn/extra.py' is in it and not in RECORD",)


def test_a_wheel_cut_anywhere_is_called_damaged(tmp_path: Path) -> None:
    whole = forge.wheel(tmp_path, FILES).read_bytes()
    path = tmp_path / "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
    for cut in range(1, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(IntegrityError, match="cut off or damaged"):
            read(path)


def test_a_member_with_a_flipped_bit_is_called_damaged(tmp_path: Path) -> None:
    path = forge.wheel(tmp_path, {"flash_attn/_C.so": bytes(range(256)) * 64})
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError):
        read(path)


def test_a_zip_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = forge.wheel(tmp_path, FILES)
    data = bytearray(path.read_bytes())
    for at in range(len(data)):
        if data[at : at + 4] == b"PK\1\2":
            data[at + 24 : at + 28] = b"\xfe\xff\xff\xff"  # each says that it holds 4 GB
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="likely a decompression bomb"):
        read(path)


def test_a_zip_without_record_is_no_wheel(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.py", "")
    with pytest.raises(IntegrityError, match="no wheel"):
        read(path)
