"""What a wheel says of itself, whether it is whole, and the compiled files in it."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

import msgspec
from packaging.tags import Tag, parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from flashdepot.binary.window import FETCH_AGAIN
from flashdepot.errors import IntegrityError
from flashdepot.files.archive import refuse_bomb
from flashdepot.files.disk import scratch_folder
from flashdepot.model.wheel import in_record

_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, csv.Error, struct.error, EOFError, OverflowError, ValueError),
    IndexError,  # a member without a name
    RuntimeError,  # an encrypted member
)
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_DOTS_LIMIT = 12
_ENTRIES_LIMIT = 100_000
_DIRECTORY_LIMIT = 64 << 20
_TEXT_LIMIT = 16 << 20
_CHUNK = 1 << 20
_SUFFIXES = {".so", ".pyd", ".dll", ".a", ".lib", ".o", ".obj"}
_TEXTS = {"METADATA", "WHEEL", "RECORD"}
_UNRECORDED = {"RECORD", "RECORD.jws", "RECORD.p7s"}
_DIGESTS = ("sha256", "sha384", "sha512")
"""The algorithms that RECORD may use: "sha256 or better" (PEP 427), of those that hashlib always has."""


class WheelFacts(msgspec.Struct, frozen=True):
    """A wheel's name, version and tags by its file name (``None`` when that is not a wheel's) and by its metadata.

    ``files`` are the names of all members; ``problems`` is what is wrong with it, a sentence each: members that differ
    from RECORD, and metadata that contradict the file name. ``requires_python`` and ``requires`` (``torch>=2.4``) are
    METADATA's, empty without any.
    """

    name: str
    version: str
    tags: frozenset[Tag] | None
    metadata_tags: frozenset[Tag]
    files: frozenset[str]
    problems: tuple[str, ...]
    requires_python: str = ""
    requires: tuple[str, ...] = ()


def read_wheel(path: Path, on_binary: Callable[[str, Path], None]) -> WheelFacts:
    """Read every byte of a wheel: CRC, RECORD's digests (PEP 427), metadata.

    Memory is bounded whatever the file holds: members pass through in pieces, compiled ones by way of a temporary file,
    which ``on_binary`` gets with the member's name.
    """
    try:
        _refuse_huge_directory(path)
        with zipfile.ZipFile(path) as archive:
            return _Reading(path, archive, on_binary).run()
    except _DAMAGE as error:
        raise IntegrityError(f"{path.name} is cut off or damaged: {error}.", hint=FETCH_AGAIN) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # zipfile seeks to where a damaged list of members points
            raise
        raise IntegrityError(f"{path.name} is cut off or damaged: a member is missing.", hint=FETCH_AGAIN) from error


class _Reading:
    def __init__(self, path: Path, archive: zipfile.ZipFile, on_binary: Callable[[str, Path], None]) -> None:
        self._path = path
        self._archive = archive
        self._on_binary = on_binary
        self._rows: dict[str, tuple[str, str]] = {}
        self._read_members: set[str] = set()
        self._texts: dict[str, str] = {}
        self._problems: list[str] = []

    def run(self) -> WheelFacts:
        # Not is_dir(): Python before 3.12 takes the last character of a name that may have none.
        members = [info for info in self._archive.infolist() if not info.filename.endswith("/")]
        if len(members) > _ENTRIES_LIMIT:
            raise IntegrityError(f"{self._path.name} is refused: it has too many members.", hint=FETCH_AGAIN)
        refuse_bomb(self._path, sum(info.file_size for info in members), self._path.stat().st_size)
        self._read_record(members)
        with scratch_folder("check") as folder:
            for info in members:
                if info.compress_type not in _METHODS:
                    raise zipfile.BadZipFile(f"'{info.filename}' is compressed in a way that installers do not know")
                if _leads_out(info.filename):
                    self._problems.append(f"'{info.filename}' leads out of the folder that a wheel is unpacked into")
                if info.filename in self._read_members:
                    self._problems.append(f"'{info.filename}' is in it twice")
                self._read_members.add(info.filename)
                self._read(info, folder / "member")
        missing = self._rows.keys() - self._read_members
        self._problems += [f"RECORD lists '{name}', which is not in it" for name in sorted(missing)]
        return self._facts()

    def _read_record(self, members: Iterable[zipfile.ZipInfo]) -> None:
        """The digest and the size that RECORD has for each file."""
        info = next((m for m in members if _metadata_name(m) == "RECORD"), None)
        if info is None:
            raise IntegrityError(f"{self._path.name} is a zip archive but not a wheel: it has no RECORD.")
        self._refuse_large_text(info)
        for row in csv.reader(io.StringIO(self._archive.read(info).decode("utf-8", "replace"))):
            name, digest, size = (*row, "", "", "")[:3]
            if not name or PurePosixPath(name).name in _UNRECORDED:
                continue
            if self._rows.setdefault(name, (digest, size)) != (digest, size):
                self._problems.append(f"RECORD lists '{name}' twice, with different contents")

    def _refuse_large_text(self, info: zipfile.ZipInfo) -> None:
        if info.file_size > _TEXT_LIMIT:
            name = PurePosixPath(info.filename).name
            raise IntegrityError(f"{self._path.name} is refused: its {name} has {info.file_size} bytes.")

    def _read(self, info: zipfile.ZipInfo, copy: Path) -> None:
        """Pass one member through, and compare it with its row of RECORD."""
        name = PurePosixPath(info.filename)
        algorithm, _, expected = self._rows.get(info.filename, ("", ""))[0].partition("=")
        digest = hashlib.new(algorithm if algorithm in _DIGESTS else _DIGESTS[0])
        wanted = _metadata_name(info) in _TEXTS
        if wanted:
            self._refuse_large_text(info)
        is_binary = name.suffix.lower() in _SUFFIXES or ".so." in name.name
        text = io.BytesIO()
        with self._archive.open(info) as source, copy.open("wb") as target:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                if wanted:
                    text.write(chunk)
                elif is_binary:
                    target.write(chunk)
        if wanted:
            self._texts[name.name] = text.getvalue().decode("utf-8", "replace")
        elif is_binary:
            self._on_binary(info.filename, copy)
        if name.name not in _UNRECORDED:
            self._compare(info, algorithm, expected.rstrip("="), in_record(digest.digest()))

    def _compare(self, info: zipfile.ZipInfo, algorithm: str, expected: str, found: str) -> None:
        name = info.filename
        if name not in self._rows:
            self._problems.append(f"'{name}' is in it and not in RECORD")
        elif algorithm not in _DIGESTS:
            has = f"only its {algorithm}" if algorithm else "no digest"
            self._problems.append(f"RECORD has {has} for '{name}', and must have its SHA-256 or better")
        elif found != expected:
            self._problems.append(
                f"'{name}' is not the file that RECORD lists: their {algorithm.upper().replace('SHA', 'SHA-')} differ"
            )
        elif (size := self._rows[name][1]) and size != str(info.file_size):
            self._problems.append(f"'{name}' has {info.file_size} bytes, and RECORD says {size}")

    def _facts(self) -> WheelFacts:
        metadata = HeaderParser().parsestr(self._texts.get("METADATA", ""))
        name, version = str(metadata.get("Name", "")), str(metadata.get("Version", ""))
        lines = HeaderParser().parsestr(self._texts.get("WHEEL", "")).get_all("Tag", [])
        tags: frozenset[Tag] | None = None
        try:
            file_name, file_version, _, tags = parse_wheel_filename(self._path.name)
        except (InvalidWheelFilename, InvalidVersion):
            pass
        else:
            if canonicalize_name(name) != file_name:
                self._problems.append(f"its file name says '{file_name}' and its METADATA '{name}'")
            if not _same_version(version, file_version):
                self._problems.append(f"its file name says version {file_version} and its METADATA '{version}'")
        return WheelFacts(
            name=name,
            version=version,
            tags=tags,
            metadata_tags=frozenset(tag for line in lines if _is_tag(str(line)) for tag in parse_tag(str(line))),
            files=frozenset(self._read_members),
            problems=tuple(self._problems),
            requires_python=str(metadata.get("Requires-Python", "")),
            requires=tuple(map(str, metadata.get_all("Requires-Dist", []))),
        )


def _metadata_name(info: zipfile.ZipInfo) -> str:
    """The name of a member in the wheel's ``.dist-info`` folder; empty for another."""
    path = PurePosixPath(info.filename)
    return path.name if path.parent.name.endswith(".dist-info") and len(path.parts) == 2 else ""  # noqa: PLR2004


def _leads_out(name: str) -> bool:
    """Whether a member's name is absolute, of a drive, or goes upwards, for any system's way to read it."""
    parts = name.replace("\\", "/").split("/")
    return ".." in parts or parts[0] == "" or ":" in parts[0]


def _is_tag(line: str) -> bool:
    """Whether a line is a tag that does not unfold into thousands."""
    return line.count("-") == 2 and line.count(".") <= _DOTS_LIMIT  # noqa: PLR2004


def _same_version(text: str, version: Version) -> bool:
    """Whether METADATA and file name agree. Upstream adds the local version to only the file name (its publish.yml)."""
    try:
        return Version(text) in {version, Version(version.public)}
    except InvalidVersion:
        return False


def _refuse_huge_directory(path: Path) -> None:
    """zipfile reads the whole list of members into memory: look at its size first (APPNOTE.TXT, 4.3.14 and 4.3.16)."""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - (1 << 16) - 128))
        tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if end < 0 or end + 22 > len(tail):
        raise zipfile.BadZipFile("its end, the list of its members, is missing")
    (directory,) = struct.unpack_from("<I", tail, end + 12)
    wide = tail.rfind(b"PK\6\6", 0, end)
    if wide >= 0 and wide + 56 <= len(tail):
        (directory,) = struct.unpack_from("<Q", tail, wide + 40)
    if directory > _DIRECTORY_LIMIT:
        raise zipfile.BadZipFile(f"the list of its members has {directory} bytes")
