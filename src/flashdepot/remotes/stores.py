"""Where a remote's bytes are: a bucket, a web server, a folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from flashdepot.errors import FlashdepotError, IntegrityError, NetworkError
from flashdepot.files.directory import create_plain, is_plain_file, open_plain, plain_folder, plain_path
from flashdepot.files.disk import explain_disk_error, sync_folder, write_all
from flashdepot.files.user_files import finish
from flashdepot.model.remote import BUCKETS, RemoteSettings

Received = Callable[[int], None]
"""Called with the number of bytes that have just arrived; what it raises ends the transfer."""


class DeniedError(NetworkError):
    """The place answers, and does not let this user read there, or hides what is not there."""


class Opened(NamedTuple):
    """A file that is being read: the offset of the first byte that comes, and the bytes."""

    start: int
    chunks: Generator[bytes, None, None]


class Backend(Protocol):
    """One kind of place. It raises ``FileNotFoundError`` for what is not there, and anything for what goes wrong."""

    def open(self, name: str, start: int) -> Opened:
        """Read a file from an offset on, or from its beginning where the place cannot do that."""

    def size(self, name: str) -> int | None:
        """The size of a file in bytes, ``None`` where the place does not say; it may be that of an unusable file."""

    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there, whole or not at all, in place of one that is there."""


class Store:
    """A place of bytes by name. Whatever the place does, each method answers or raises one of our errors."""

    def __init__(self, remote: RemoteSettings, place: Backend) -> None:
        self._url = remote.url.rstrip("/")
        self._place = place

    def read(self, name: str, longest: int) -> bytes | None:
        """A small file, ``None`` when there is none; :raises IntegrityError: when it has more than ``longest`` bytes."""
        data = bytearray()
        return bytes(data) if self._give(name, longest, data.extend) else None

    def digest(self, name: str, longest: int) -> str | None:
        """The SHA-256 of a file, ``None`` when there is none, or it has more than ``longest`` bytes; raises as :meth:`read`."""
        digest = hashlib.sha256()
        with contextlib.suppress(IntegrityError):
            return digest.hexdigest() if self._give(name, longest, digest.update) else None
        return None

    def _give(self, name: str, longest: int, take: Callable[[bytes], object]) -> bool:
        """Give the pieces of a file; :returns: whether there is one."""
        left = longest
        try:
            with contextlib.closing(self._opened(name, 0).chunks) as chunks:
                for chunk in chunks:
                    take(chunk)
                    if (left := left - len(chunk)) < 0:
                        raise IntegrityError(f"{self._url}/{name} has more than {longest} bytes.")
        except FileNotFoundError:
            return False
        return True

    def fetch(self, name: str, destination: Path, size: int, received: Received) -> None:
        """Write a file of ``size`` bytes to ``destination``, going on from the bytes that are there where that is possible.

        :raises FileNotFoundError: when there is none; :raises IntegrityError: when it is longer.
        """
        have = destination.stat().st_size if destination.exists() else 0
        if have == size:
            return
        at, chunks = self._opened(name, have if have < size else 0)
        with contextlib.closing(chunks), destination.open("r+b" if at else "wb", buffering=0) as file:
            file.truncate(at)
            file.seek(at)
            for chunk in chunks:
                at += len(chunk)
                if at > size:
                    raise IntegrityError(f"{self._url}/{name} is longer than was signed")
                write_all(file, chunk)
                received(len(chunk))
            os.fsync(file.fileno())

    def size(self, name: str) -> int | None:
        """The size of a file in bytes, ``None`` when there is none, or nobody can say; raises as :meth:`read`."""
        try:
            with self._only_our_errors(name, "read"):
                return self._place.size(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there, whole or not at all, in place of one that is there; raises as :meth:`read`."""
        try:
            with self._only_our_errors(name, "written"):
                self._place.write(name, source)
        except FileNotFoundError:
            raise NetworkError(f"{self._url} cannot be written: it knows no such place") from None

    def _opened(self, name: str, start: int) -> Opened:
        with self._only_our_errors(name, "read"):
            opened = self._place.open(name, start)
        if opened.start not in {0, start}:
            raise NetworkError(f"{self._url}/{name} was asked from byte {start} on, and sends from {opened.start} on")
        return Opened(opened.start, self._guarded(name, opened.chunks))

    def _guarded(self, name: str, chunks: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        with self._only_our_errors(name, "read"):
            yield from chunks

    @contextlib.contextmanager
    def _only_our_errors(self, name: str, done: str) -> Iterator[None]:
        """Nothing that a place says stops a build: every exception is our own here."""
        try:
            yield
        except (FlashdepotError, FileNotFoundError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of Rust code is not an Exception
            said = (isinstance(error, OSError) and error.strerror) or str(error).strip().partition("\n")[0][:300]
            explained = explain_disk_error(error, None) if isinstance(error, OSError) and done == "written" else None
            hint = explained.hint if explained is not None else ""
            raise NetworkError(
                f"{self._url}/{name} cannot be {done}: {said or type(error).__name__}", hint=hint
            ) from error


def open_store(remote: RemoteSettings) -> Store:
    """The store of a remote. Nothing is asked yet; :raises MissingToolError: when a package for it is not installed."""
    scheme = remote.url.partition(":")[0]
    place: Backend
    if scheme == "file":
        place = FolderBackend(remote)
    elif scheme in BUCKETS:
        from flashdepot.remotes.bucket import BucketBackend  # noqa: PLC0415

        place = BucketBackend(remote)
    else:
        from flashdepot.remotes.web import WebBackend  # noqa: PLC0415

        place = WebBackend(remote)
    return Store(remote, place)


_CHUNK = 1 << 20
_TEMPORARY = "tmp"
_ABANDONED = 24 * 3600
"""Seconds after which what was being written is nobody's: anyone who wrote it was killed."""


class FolderBackend:
    """Files in a folder of this machine. obstore's LocalStore reads and writes through links in it (0.12.1)."""

    def __init__(self, remote: RemoteSettings) -> None:
        parts = urlsplit(remote.url)
        self._root = Path(url2pathname(f"//{parts.netloc}{parts.path}" if parts.netloc else parts.path))
        self._swept = False

    def open(self, name: str, start: int) -> Opened:
        """See :class:`Backend`."""
        with self._reaching(name) as root:
            file = open_plain(plain_path(root, name))
        file.seek(start)
        return Opened(start, _chunks(file))

    def size(self, name: str) -> int | None:
        """See :class:`Backend`."""
        with self._reaching(name) as root:
            status = plain_path(root, name).lstat()
        return status.st_size if is_plain_file(status) else None

    def write(self, name: str, source: Path | bytes) -> None:
        """See :class:`Backend`."""
        with self._reaching(name) as root:
            folder = plain_folder(root, _TEMPORARY, create=True)
            self._sweep(folder)
            temporary = folder / f"{os.getpid()}-{os.urandom(8).hex()}"
            try:
                with create_plain(temporary) as file:
                    if isinstance(source, bytes):
                        file.write(source)
                    else:
                        with source.open("rb") as data:
                            shutil.copyfileobj(data, file, _CHUNK)
                    finish(file)
                place = plain_path(root, name, create=True)
                temporary.replace(place)
                sync_folder(place.parent)
            finally:
                temporary.unlink(missing_ok=True)

    def _sweep(self, temporary: Path) -> None:
        """Remove what others began to write and never finished, once."""
        if self._swept:
            return
        self._swept = True
        for path in list(temporary.iterdir()):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _ABANDONED:
                    path.unlink()

    @contextlib.contextmanager
    def _reaching(self, name: str) -> Iterator[Path]:
        """Give the folder, and say what a link on the way to a file means. Without the folder a disk is not mounted."""
        if not self._root.exists():
            raise NetworkError(f"there is no folder {self._root}", hint="Mount it, or make it.")
        try:
            yield self._root
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP, errno.EINVAL}:
                raise
            raise NetworkError(
                f"{name} cannot be reached: {error.filename or 'a part of it'} is not a plain file or folder, and no link "
                "in a folder remote is followed",
                hint="Remove what is there, and push again.",
            ) from error


def _chunks(file: IO[bytes]) -> Generator[bytes, None, None]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk
