"""Unpacking archives that others made, without trusting them."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from flashdepot.errors import IntegrityError

_ENTRY_LIMIT = 100_000
_SIZE_LIMIT = 4 << 30
_PADDING_LIMIT = 16 << 20
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    RuntimeError,  # a zip that is encrypted, or compressed in a way that Python does not know
)
_COLLISION = (FileExistsError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True)
class _Entry:
    name: str
    size: int
    executable: bool
    problem: str
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, folder: Path, *, keep: Callable[[str], bool] = lambda _: True) -> None:
    """Unpack a ``.tar.gz`` or a ``.whl``/``.zip`` into ``folder``, which must not exist yet.

    Only regular files are written, and only those whose name (with ``/``) ``keep`` accepts. Everything is checked
    before it is written: an entry that leaves the folder, a link, a device, a name that is there twice, too many entries
    or more than 4 GiB ends the unpacking, and what was unpacked is removed.

    :raises IntegrityError: for a damaged or hostile archive; it names the entry.
    """
    folder.mkdir(parents=True)
    try:
        _unpack(archive, folder, keep)
    except _DAMAGE as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise IntegrityError(f"{archive.name} is damaged: {error}.", hint="Fetch it again.") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _unpack(archive: Path, folder: Path, keep: Callable[[str], bool]) -> None:
    total = 0
    for count, entry in enumerate(_entries(archive)):
        if count >= _ENTRY_LIMIT:
            raise IntegrityError(f"{archive.name} is refused: more than {_ENTRY_LIMIT} entries.")
        problem = entry.problem or _name_problem(entry.name)
        if problem:
            raise IntegrityError(
                f"{archive.name} is refused: its entry '{entry.name}' {problem}.",
                hint="Nothing of it was kept. Fetch the archive again from a source you trust.",
            )
        total += entry.size  # of what is passed over as well: a tar must be decompressed to get past it
        if total > _SIZE_LIMIT:
            raise IntegrityError(f"{archive.name} is refused: it unpacks to more than {_SIZE_LIMIT >> 30} GiB.")
        if keep(entry.name) and (source := entry.open()) is not None:
            try:
                _write(entry, source, folder.joinpath(*PurePosixPath(entry.name).parts))
            except _COLLISION as error:
                raise IntegrityError(
                    f"{archive.name} is refused: its entry '{entry.name}' has the name of another one.",
                    hint="Nothing of it was kept. Fetch the archive again from a source you trust.",
                ) from error


def _write(entry: _Entry, source: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("xb") as file:
        _copy_exactly(source, file, entry.size)
    path.chmod(0o755 if entry.executable else 0o644)


def _copy_exactly(source: IO[bytes], file: IO[bytes], size: int) -> None:
    left = size
    while chunk := source.read(min(1 << 20, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise ValueError("an entry is longer than its header says")
        file.write(chunk)
    if left:
        raise ValueError("an entry is shorter than its header says")


def _name_problem(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or (os.name == "nt" and ":" in name):
        return "points outside the folder"
    return ""


def _entries(archive: Path) -> Iterator[_Entry]:
    if archive.suffix in {".whl", ".zip"}:
        yield from _zip_entries(archive)
    else:
        yield from _tar_entries(archive)


def _zip_entries(archive: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            if info.is_dir():
                continue
            unix = info.external_attr >> 16
            kind = stat.S_IFMT(unix)
            problem = "" if kind in {0, stat.S_IFREG} else "is a link or a special file"
            yield _Entry(info.filename, info.file_size, bool(unix & 0o111), problem, partial(file.open, info))


def _tar_entries(archive: Path) -> Iterator[_Entry]:
    # tarfile's own gzip stream ("r|gz") takes a truncated file for a complete one; GzipFile checks length and CRC.
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as file:
        for info in file:
            if info.isdir():
                continue
            problem = "" if info.isreg() else "is a link or a special file"
            yield _Entry(info.name, info.size, bool(info.mode & 0o111), problem, partial(file.extractfile, info))
        _read_to_end(stream)


def _read_to_end(stream: gzip.GzipFile) -> None:
    left = _PADDING_LIMIT
    while chunk := stream.read(1 << 20):
        left -= len(chunk)
        if left < 0:
            raise ValueError("much data follows its last entry")
