"""Unpacking archives that others made, without trusting them."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from flashdepot.errors import IntegrityError, MissingToolError

try:
    import lzma
except ImportError:  # a Python that was built without it; few archives need it
    _XZ_DAMAGE: tuple[type[Exception], ...] = ()
else:
    _XZ_DAMAGE = (lzma.LZMAError,)

_ENTRY_LIMIT = 40_000
"""Twice what the largest archive has that is unpacked here, zig's."""
_SIZE_LIMIT = 4 << 30
_PADDING_LIMIT = 16 << 20
_CHUNK = 1 << 20
_HEADER_LIMIT = 1 << 20
_FREE_SIZE = 64 << 20
_RATIO_LIMIT = 100
"""Machine code, sources and PTX are compressed to between a half and a twentieth; what deflate can do is a thousandth."""
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_DAMAGE: tuple[type[Exception], ...] = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    *_XZ_DAMAGE,
    EOFError,
    ValueError,
    RuntimeError,  # a zip that is encrypted, or compressed in a way that Python does not know
)
_CANNOT_BE = {errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ}
"""What the system says to a place that cannot be in a file, and to a name that cannot be a file's."""

_COLLISION = (FileExistsError, IsADirectoryError, NotADirectoryError)


class _Entry(msgspec.Struct, frozen=True):
    name: str
    size: int
    executable: bool
    problem: str
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, folder: Path, *, keep: Callable[[str], bool] = lambda _: True, pass_over_links: bool = False
) -> None:
    """Unpack a ``.tar.gz``, a ``.tar.xz`` or a ``.whl``/``.zip`` into ``folder``, which must not exist yet.

    Only regular files are written, and only those whose name (with ``/``) ``keep`` accepts. An entry that leaves the
    folder, a link, a device, a name that is there twice, too many entries, more than 4 GiB, or more than a hundred times
    the archive's own size ends the unpacking, and what was unpacked is removed. Memory does not grow with the archive.

    :param pass_over_links: a link that ``keep`` does not accept ends nothing.
    :raises IntegrityError: for a damaged or hostile archive; it names the entry.
    """
    folder.mkdir(parents=True)
    try:
        _unpack(archive, folder, keep, pass_over_links)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        cannot_be = isinstance(error, OSError) and error.errno in _CANNOT_BE
        if not (cannot_be or isinstance(error, _DAMAGE)):
            raise
        why = (isinstance(error, OSError) and error.strerror) or error
        raise IntegrityError(f"{archive.name} is damaged: {why}.", hint="Fetch it again.") from error


def _unpack(archive: Path, folder: Path, keep: Callable[[str], bool], pass_over_links: bool) -> None:
    for entry in (_zip_entries if archive.suffix in {".whl", ".zip"} else _tar_entries)(archive):
        passed = pass_over_links and not keep(entry.name)
        problem = _name_problem(entry.name) or ("" if passed else entry.problem)
        if problem:
            raise _refused(archive, f"its entry '{entry.name}' {problem}")
        if keep(entry.name) and (source := entry.open()) is not None:
            try:
                _write(entry, source, folder.joinpath(*PurePosixPath(entry.name).parts))
            except _COLLISION as error:
                raise _refused(archive, f"its entry '{entry.name}' has the name of another one") from error


def _refused(archive: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{archive.name} is refused: {why}.",
        hint="Nothing of it was kept. Fetch the archive again from a source you trust.",
    )


def _write(entry: _Entry, source: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("xb") as file:
        left = entry.size
        while chunk := source.read(min(_CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                raise ValueError("an entry is longer than its header says")
            file.write(chunk)
        if left:
            raise ValueError("an entry is shorter than its header says")
    path.chmod(0o755 if entry.executable else 0o644)


def _name_problem(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or (os.name == "nt" and ":" in name):
        return "points outside the folder"
    return ""


def _zip_entries(archive: Path) -> Iterator[_Entry]:
    with zipfile.ZipFile(archive) as file:
        # Not is_dir(): Python before 3.12 takes the last character of a name that may have none.
        _refuse_many(archive, len(file.infolist()))
        members = [info for info in file.infolist() if not info.filename.endswith("/")]
        refuse_bomb(archive, sum(info.file_size for info in members), archive.stat().st_size)
        for info in members:
            unix = info.external_attr >> 16
            kind = stat.S_IFMT(unix)
            problem = "" if kind in {0, stat.S_IFREG} else "is a link or a special file"
            if info.compress_type not in _METHODS:
                problem = "is compressed in a way that installers do not know"
            yield _Entry(info.filename, info.file_size, bool(unix & 0o111), problem, partial(file.open, info))


def _refuse_many(archive: Path, count: int) -> None:
    """Folders count as well: each takes its time."""
    if count > _ENTRY_LIMIT:
        raise _refused(archive, f"more than {_ENTRY_LIMIT} entries")


def refuse_bomb(archive: Path, unpacked: int, packed: int) -> None:
    """Refuse an archive that holds more than one of its size can.

    :param unpacked: bytes that it holds, or that have come out of it so far.
    :param packed: its own bytes, or those that were read so far.
    :raises IntegrityError: when that is a bomb.
    """
    if unpacked > _SIZE_LIMIT or unpacked > max(_FREE_SIZE, _RATIO_LIMIT * packed):
        raise _refused(archive, f"{packed} bytes of it unpack to {unpacked} or more: likely a decompression bomb")


def _tar_entries(archive: Path) -> Iterator[_Entry]:
    # tarfile's own gzip stream ("r|gz") takes a truncated file for a complete one; GzipFile checks length and CRC.
    with archive.open("rb") as packed, _decompressed(archive, packed) as unpacked:
        stream = _Measured(archive, packed, unpacked)
        with tarfile.open(fileobj=stream, mode="r:") as file:  # type: ignore[call-overload]
            for count, info in enumerate(file, 1):
                _refuse_many(archive, count)
                file.members = []  # it keeps all of them, for questions that nobody asks here
                if info.isdir():
                    continue
                problem = "" if info.isreg() and not info.issparse() else "is a link or a special file"
                yield _Entry(info.name, info.size, bool(info.mode & 0o111), problem, partial(file.extractfile, info))
        _read_to_end(stream)


def _decompressed(archive: Path, packed: IO[bytes]) -> gzip.GzipFile | lzma.LZMAFile:
    if archive.suffix != ".xz":
        return gzip.GzipFile(fileobj=packed)
    if not _XZ_DAMAGE:
        raise MissingToolError(
            f"{archive.name} cannot be unpacked: this Python has no module lzma.",
            hint="Run flashdepot with a Python that has it: python3 -c 'import lzma'",
        )
    return lzma.LZMAFile(packed)


class _Measured:
    """What is decompressed of a tar, for ``tarfile``: in its order, in small pieces, and no more than it may hold."""

    def __init__(self, archive: Path, packed: IO[bytes], unpacked: gzip.GzipFile | lzma.LZMAFile) -> None:
        self._archive, self._packed, self._unpacked = archive, packed, unpacked

    def read(self, size: int) -> bytes:
        """The next bytes; ``tarfile`` asks for a whole header at once, whatever size that claims to have."""
        if size > _HEADER_LIMIT:
            raise ValueError(f"a header has {size} bytes")
        data = self._unpacked.read(size)
        refuse_bomb(self._archive, self._unpacked.tell(), self._packed.tell())
        return data

    def seek(self, position: int) -> int:
        """Pass over what is not wanted, decompressing it."""
        while (left := position - self._unpacked.tell()) > 0:
            if not self.read(min(left, _CHUNK)):
                break
        return self._unpacked.seek(position) if left < 0 else self._unpacked.tell()

    def tell(self) -> int:
        """Where the next byte is."""
        return self._unpacked.tell()


def _read_to_end(stream: _Measured) -> None:
    left = _PADDING_LIMIT
    while chunk := stream.read(_CHUNK):
        left -= len(chunk)
        if left < 0:
            raise ValueError("much data follows its last entry")
