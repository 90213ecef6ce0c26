"""Writing a wheel file whose bytes follow from its content only.

The available writers (package ``wheel``, hatchling's and flit's) stamp RECORD with the time of day, or take the time from
an environment variable; neither lets the caller decide.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from flashdepot.files.atomic import sha256_file
from flashdepot.files.user_files import new_file

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a ZIP archive can name."""

_LEVEL = 6
"""Of 40 MB of compressed machine code level 9 makes a file 0.2 % smaller, in four times the time (2.2 against 0.6 s)."""

_UNIX = 3
"""``create_system``: whose permissions ``external_attr`` holds."""


class Entry(msgspec.Struct, frozen=True):
    """One file of a wheel: its name with ``/``, how to read its bytes, and whether it is a program or library."""

    name: str
    read: Callable[[], bytes]
    executable: bool = False

    @classmethod
    def of(cls, name: str, text: str) -> Entry:
        """A text."""
        return cls(name, text.encode)


class Wheel(msgspec.Struct, frozen=True):
    """A wheel file: its place, version and tag, the SHA-256 of its bytes, and their number."""

    path: Path
    version: str
    tag: str
    sha256: str
    size: int


def write_wheel(path: Path, entries: Iterable[Entry], info: str, tag: str, *, stored: bool = False) -> Wheel:
    """Write a wheel, whole or not at all; its dist-info folder ``info`` says its version.

    :param stored: nothing is compressed, so that the bytes do not depend on Python's zlib. Raises as below.
    """
    write_archive(path, entries, f"{info}/RECORD", stored=stored)
    version = info.removesuffix(".dist-info").partition("-")[2]
    return Wheel(path, version, tag, sha256_file(path), path.stat().st_size)


def write_archive(path: Path, entries: Iterable[Entry], record: str, *, stored: bool = False) -> None:
    """Write the file of a wheel, whole or not at all.

    :param record: the name of its RECORD, which is written last.
    :param stored: nothing is compressed.
    :raises UsageError: when something else has that name.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    rows: list[tuple[str, str, str]] = []
    kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with new_file(path.parent, path.name, "--out DIR") as file, zipfile.ZipFile(file, "w") as archive:
        for entry in entries:
            data = entry.read()
            archive.writestr(_info(entry.name, executable=entry.executable), data, kind, _LEVEL)
            rows.append((entry.name, _digest(data), str(len(data))))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        archive.writestr(_info(record), text.getvalue(), kind, _LEVEL)


def field_lines(fields: Iterable[tuple[str, str]]) -> str:
    """The lines of a METADATA or WHEEL file."""
    return "".join(f"{name}: {value}\n" for name, value in fields)


def _info(name: str, *, executable: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = _UNIX
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    return info


def _digest(data: bytes) -> str:
    """A RECORD entry's digest: URL-safe base64 without padding (PEP 376, PEP 427)."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
