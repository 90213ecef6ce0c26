"""Unpacking archives that others made. Those of compilers and sources have a known SHA-256; a wheel may be anybody's."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from flashdepot.errors import FlashdepotError, IntegrityError, MissingToolError
from flashdepot.files.disk import set_mode

_ENTRY_LIMIT = 40_000
"""Twice what the largest archive has that is unpacked here, zig's."""
_SIZE_LIMIT = 4 << 30
_FREE_SIZE = 64 << 20
_RATIO_LIMIT = 100
"""Machine code, sources and PTX are compressed to between a half and a twentieth; what deflate can do is a thousandth."""
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_OUTWARDS = "\\\0:" if os.name == "nt" else "\\\0"
_COLLISION = (FileExistsError, IsADirectoryError, NotADirectoryError)


class _Entry(msgspec.Struct, frozen=True):
    name: str
    size: int
    executable: bool
    problem: str
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, folder: Path, *, keep: Callable[[str], bool] = lambda _: True, skip_links: bool = False
) -> None:
    """Unpack a ``.tar.gz``, a ``.tar.xz`` or a ``.whl``/``.zip`` into ``folder``, which must not exist yet.

    Only regular files are written, and only those whose name (with ``/``) ``keep`` accepts. An entry that leaves the
    folder, a link (with ``skip_links`` only one that ``keep`` accepts), a device, a name that is there twice, too many
    entries, more than 4 GiB, or more than a hundred times the archive's own size ends the unpacking, and what was unpacked
    is removed; :raises IntegrityError: then, and for a damaged archive; it names the entry.
    """
    folder.mkdir(parents=True)
    try:
        _unpack(archive, folder, keep, skip_links)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, tarfile.CompressionError):
            raise MissingToolError(
                f"{archive.name} cannot be unpacked: {error}.",
                hint="Run flashdepot with a Python that has that module.",
            ) from error
        if isinstance(error, FlashdepotError) or not isinstance(error, Exception):
            raise
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise  # of the disk; gzip and zipfile raise these two of bytes that make no sense
        raise IntegrityError(f"{archive.name} is damaged: {error}.", hint="Fetch it again.") from error


def _unpack(archive: Path, folder: Path, keep: Callable[[str], bool], skip_links: bool) -> None:
    unpacked, packed = 0, archive.stat().st_size
    with contextlib.closing(_entries(archive)) as entries:
        for count, entry in enumerate(entries, 1):
            if count > _ENTRY_LIMIT:
                raise _refused(archive, f"more than {_ENTRY_LIMIT} entries")
            unpacked += entry.size
            refuse_bomb(archive, unpacked, packed)
            passed = skip_links and not keep(entry.name)
            path, problem = PurePosixPath(entry.name), "" if passed else entry.problem
            if path.is_absolute() or ".." in path.parts or any(sign in entry.name for sign in _OUTWARDS):
                problem = "points outside the folder"
            if problem:
                raise _refused(archive, f"its entry '{entry.name}' {problem}")
            if keep(entry.name) and (source := entry.open()) is not None:
                _write(archive, entry, source, folder.joinpath(*path.parts))


def _entries(archive: Path) -> Generator[_Entry, None, None]:
    """Every file of an archive, and what takes the place of one."""
    if archive.suffix in {".whl", ".zip"}:
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if not info.filename.endswith("/"):
                    yield _of_zip(zipped, info)
        return
    with tarfile.open(archive) as tarred:
        for member in tarred:
            if member.isdir():
                yield _Entry(member.name, 0, False, "", lambda: None)
            else:
                problem = "" if member.isreg() and not member.issparse() else "is a link or a special file"
                source = partial(tarred.extractfile, member)
                yield _Entry(member.name, member.size, bool(member.mode & 0o111), problem, source)


def _of_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Entry:
    unix = info.external_attr >> 16
    problem = "" if stat.S_IFMT(unix) in {0, stat.S_IFREG} else "is a link or a special file"
    if info.compress_type not in _METHODS:
        problem = "is compressed in a way that installers do not know"
    return _Entry(info.filename, info.file_size, bool(unix & 0o111), problem, partial(archive.open, info))


def _refused(archive: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{archive.name} is refused: {why}.",
        hint="Nothing of it was kept. Fetch the archive again from a source you trust.",
    )


def _write(archive: Path, entry: _Entry, source: IO[bytes], path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with source, path.open("xb") as file:
            shutil.copyfileobj(source, file)
        set_mode(path, 0o755 if entry.executable else 0o644)
    except _COLLISION as error:
        raise _refused(archive, f"its entry '{entry.name}' has the name of another one") from error


def refuse_bomb(archive: Path, unpacked: int, packed: int) -> None:
    """:raises IntegrityError: for an archive of ``packed`` bytes whose entries so far hold too many, ``unpacked``."""
    if unpacked > _SIZE_LIMIT or unpacked > max(_FREE_SIZE, _RATIO_LIMIT * packed):
        raise _refused(archive, f"{packed} bytes of it unpack to {unpacked} or more: likely a decompression bomb")
