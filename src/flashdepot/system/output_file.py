"""A file that goes into a folder of the user's, and how one that is there is recognised as flashdepot's."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.system.directory import Directory

Written = Mapping[str, frozenset[str]]
"""What flashdepot wrote by place: the identities that a file there may have (see :attr:`OutputFile.identity`)."""

_CHUNK = 1 << 20
_DEVICES = frozenset({"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))})
"""Names that Windows takes for devices, whatever suffix they have (Microsoft, "Naming Files, Paths, and Namespaces")."""

_RECORD_SCHEMA = 1
_RECORD_KIND = "files that flashdepot wrote here"


class OutputFile(msgspec.Struct, frozen=True):
    """One file to write.

    :param place: where, with ``/``.
    :param digest: SHA-256 of its bytes.
    :param content: the bytes, or how to find the file that has them; they are verified while they are copied.
    :param link: where it links to; it has no bytes then.
    :param modified_ns: the time of modification to give it; now when ``None``.
    """

    place: str
    digest: str = ""
    content: bytes | Callable[[], Path] = b""
    link: str = ""
    modified_ns: int | None = None

    @classmethod
    def of(cls, place: str, data: bytes) -> OutputFile:
        """A file with these bytes."""
        return cls(place, hashlib.sha256(data).hexdigest(), data)

    @property
    def identity(self) -> str:
        """What tells whether something else is the same: the digest, or for a link where it leads."""
        return f"-> {self.link}" if self.link else self.digest

    @property
    def identities(self) -> frozenset[str]:
        """What it may be when it is there already. Where there are no links, git writes their target as a text."""
        as_text = {hashlib.sha256(self.link.encode()).hexdigest()} if self.link else set()
        return frozenset({self.identity, *as_text})

    def put(self, folder: Directory, name: str) -> None:
        """Create it in a folder, whole and on disk.

        :raises IntegrityError: when its bytes are not what the digest says.
        """
        if self.link:
            folder.create_link(name, self.link)
            return
        with folder.create(name) as target:
            if (actual := _copy(self.content, target)) != self.digest:
                raise IntegrityError(
                    f"The bytes for {self.place} are damaged: expected SHA-256 {self.digest}, found {actual}.",
                    hint="Get the library again: flashdepot get",
                )
            finish(target, 0o644)
            if self.modified_ns is not None:
                os.utime(folder.path / name if os.name == "nt" else target.fileno(), ns=(self.modified_ns,) * 2)


class OutputListing(msgspec.Struct, frozen=True):
    """The file of a folder that says what flashdepot wrote there.

    :param read: what its bytes say; raises :class:`ValueError` when it is not one that flashdepot writes.
    """

    place: str
    read: Callable[[bytes], Written]


def record(name: str) -> OutputListing:
    """A listing for folders that have none of their own: places and identities, in a file of that name."""
    return OutputListing(name, _read_record)


def record_text(files: Sequence[OutputFile]) -> bytes:
    """The bytes of a :func:`record`."""
    listed = {file.place: file.identity for file in sorted(files, key=lambda file: file.place)}
    return (json.dumps({"schema": _RECORD_SCHEMA, "kind": _RECORD_KIND, "files": listed}, indent=2) + "\n").encode()


def _read_record(data: bytes) -> Written:
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("kind") != _RECORD_KIND:
        raise ValueError("not a record of written files")
    files = document.get("files")
    if not isinstance(files, dict) or not all(isinstance(identity, str) for identity in files.values()):
        raise ValueError("its files are no table of digests")
    return {place: frozenset({identity}) for place, identity in files.items()}


def require_safe(place: str) -> None:
    """Check that a name leads nowhere but into the folder that it is used in, on any system.

    :raises IntegrityError: for a place outside, or one that git, Windows or a terminal takes for something else.
    """
    for part in place.split("/"):
        wrong = (
            part in {"", ".", ".."}
            or part[-1] in ". "
            or any(character in '\\:*?"<>|\x7f' or character < " " for character in part)
            or part.casefold() in {".git", "git~1"}
            or part.partition(".")[0].upper() in _DEVICES
        )
        if wrong:
            raise IntegrityError(
                f"{place!r} is not a name for a file of a library: nothing is written there.",
                hint="Get the library again: flashdepot get",
            )


def identity_of(folder: Directory, name: str, status: os.stat_result) -> str:
    """The :attr:`OutputFile.identity` of what is there; empty for what is neither a file nor a link."""
    if stat.S_ISLNK(status.st_mode):
        return f"-> {folder.link(name)}"
    if not stat.S_ISREG(status.st_mode):
        return ""
    with folder.open_file(name) as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    """SHA-256 of the rest of an open file."""
    hashed = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        hashed.update(chunk)
    return hashed.hexdigest()


def is_beginning(there: IO[bytes], new: IO[bytes]) -> bool:
    """Whether one file is the beginning of another: one that was cut off loses nothing by being replaced."""
    while chunk := there.read(_CHUNK):
        if new.read(len(chunk)) != chunk:
            return False
    return True


def finish(file: IO[bytes], mode: int) -> None:
    """Bring a file on to the disk, and let those read it who may."""
    file.flush()
    if os.name != "nt":
        os.fchmod(file.fileno(), mode)
    os.fsync(file.fileno())


def _copy(content: bytes | Callable[[], Path], target: IO[bytes]) -> str:
    """Write bytes, and return their SHA-256. A source that is a symbolic link is not followed."""
    if isinstance(content, bytes):
        target.write(content)
        return hashlib.sha256(content).hexdigest()
    hashed = hashlib.sha256()
    path = content()
    with Directory.open(path.parent) as folder, folder.open_file(path.name) as source:
        while chunk := source.read(_CHUNK):
            hashed.update(chunk)
            target.write(chunk)
    return hashed.hexdigest()
