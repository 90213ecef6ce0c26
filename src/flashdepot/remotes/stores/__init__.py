"""Where a remote's bytes lie: a bucket, a web server, a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from flashdepot.errors import FlashdepotError, IntegrityError, NetworkError
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
        """Put a file there, whole or not at all, in the place of one that is there."""


class Store:
    """A place of bytes by name. Whatever the place does, each method answers or raises one of our errors."""

    def __init__(self, remote: RemoteSettings, place: Backend) -> None:
        self._url = remote.url.rstrip("/")
        self._place = place

    def read(self, name: str, longest: int) -> bytes | None:
        """A small file, ``None`` when there is none.

        :raises IntegrityError: when it is longer than ``longest`` bytes.
        :raises NetworkError: when the place does not answer, or refuses.
        """
        data = bytearray()
        try:
            with contextlib.closing(self._opened(name, 0).chunks) as chunks:
                for chunk in chunks:
                    data += chunk
                    if len(data) > longest:
                        raise IntegrityError(f"{self._url}/{name} has more than {longest} bytes.")
        except FileNotFoundError:
            return None
        return bytes(data)

    def digest(self, name: str, longest: int) -> str | None:
        """The SHA-256 of a file, ``None`` when there is none, or it has more than ``longest`` bytes; raises as :meth:`read`."""
        digest, size = hashlib.sha256(), 0
        try:
            with contextlib.closing(self._opened(name, 0).chunks) as chunks:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    if size > longest:
                        return None
        except FileNotFoundError:
            return None
        return digest.hexdigest()

    def fetch(self, name: str, destination: Path, size: int, received: Received) -> None:
        """Write a file of ``size`` bytes to ``destination``, going on from the bytes that are there where that is possible.

        :raises FileNotFoundError: when there is none.
        :raises IntegrityError: when it is longer.
        :raises NetworkError: when the place does not answer, or refuses.
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
                file.write(chunk)
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
        """Put a file there, whole or not at all, in the place of one that is there; raises as :meth:`read`."""
        try:
            with self._only_our_errors(name, "written"):
                self._place.write(name, source)
        except FileNotFoundError:
            raise NetworkError(f"{self._url} cannot be written: it knows no such place") from None

    def _opened(self, name: str, start: int) -> Opened:
        with self._only_our_errors(name, "read"):
            opened = self._place.open(name, start)
        if opened.start not in {0, start}:
            raise NetworkError(
                f"{self._url}/{name} was asked for from byte {start} on, and sends from {opened.start} on"
            )
        return Opened(opened.start, self._guarded(name, opened.chunks))

    def _guarded(self, name: str, chunks: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        with self._only_our_errors(name, "read"):
            yield from chunks

    @contextlib.contextmanager
    def _only_our_errors(self, name: str, done: str) -> Iterator[None]:
        """Nothing that a place says stops a build: every exception is one of ours here."""
        try:
            yield
        except (FlashdepotError, FileNotFoundError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of Rust code is no Exception
            said = (isinstance(error, OSError) and error.strerror) or str(error).strip().partition("\n")[0][:300]
            raise NetworkError(f"{self._url}/{name} cannot be {done}: {said or type(error).__name__}") from error


def open_store(remote: RemoteSettings) -> Store:
    """The store of a remote. Nothing is asked yet.

    :raises MissingToolError: when a package for it is not installed.
    """
    scheme = remote.url.partition(":")[0]
    place: Backend
    if scheme == "file":
        from flashdepot.remotes.stores.folder import FolderBackend  # noqa: PLC0415

        place = FolderBackend(remote)
    elif scheme in BUCKETS:
        from flashdepot.remotes.stores.bucket import BucketBackend  # noqa: PLC0415

        place = BucketBackend(remote)
    else:
        from flashdepot.remotes.stores.web import WebBackend  # noqa: PLC0415

        place = WebBackend(remote)
    return Store(remote, place)
