"""A remote in a folder: a network file system, a disk that travels. No link in it is followed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import url2pathname

from flashdepot.errors import NetworkError
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import Opened
from flashdepot.system.directory import Directory, is_plain_file

_CHUNK = 1 << 20
_TEMPORARY = "tmp"
_ABANDONED = 24 * 3600
"""Seconds after which what was being written is nobody's: whoever wrote it was killed."""


class FolderBackend:
    """Files in a folder of this machine."""

    def __init__(self, remote: RemoteSettings) -> None:
        self._root = Path(url2pathname(urlsplit(remote.url).path))
        self._swept = False

    def open(self, name: str, start: int) -> Opened:
        """See :class:`Backend`."""
        *folders, last = name.split("/")
        with self._opened() as root, _unless_links(name), root.within(folders) as folder:
            file = folder.open_file(last)
        file.seek(start)
        return Opened(start, _chunks(file))

    def size(self, name: str) -> int | None:
        """See :class:`Backend`."""
        *folders, last = name.split("/")
        with self._opened() as root, _unless_links(name), root.within(folders) as folder:
            status = folder.status(last)
        return status.st_size if status is not None and is_plain_file(status) else None

    def write(self, name: str, source: Path | bytes) -> None:
        """See :class:`Backend`."""
        *folders, last = name.split("/")
        with self._opened() as root, _unless_links(name), root.folder(_TEMPORARY, create=True) as temporary:
            self._sweep(temporary)
            unique = f"{os.getpid()}-{os.urandom(8).hex()}"
            try:
                with temporary.create(unique) as file:
                    if isinstance(source, bytes):
                        file.write(source)
                    else:
                        with source.open("rb") as data:
                            shutil.copyfileobj(data, file, _CHUNK)
                    file.flush()
                    os.fsync(file.fileno())
                    if os.name == "posix":
                        os.fchmod(file.fileno(), 0o644)
                with root.within(folders, create=True) as folder:
                    temporary.move(unique, folder, last)
                    folder.sync()
            finally:
                temporary.remove(unique)

    def _opened(self) -> Directory:
        """A folder that is not there is a disk that is not mounted, and no answer."""
        try:
            return Directory.open(self._root)
        except FileNotFoundError:
            raise NetworkError(f"there is no folder {self._root}", hint="Mount it, or make it.") from None

    def _sweep(self, temporary: Directory) -> None:
        """Remove what others began to write and never finished, once."""
        if self._swept:
            return
        self._swept = True
        for name in temporary.names():
            with contextlib.suppress(OSError):
                status = temporary.status(name)
                if status is not None and time.time() - status.st_mtime > _ABANDONED:
                    temporary.remove(name)


@contextlib.contextmanager
def _unless_links(name: str) -> Iterator[None]:
    """Say what a link, or anything else that is no file or folder, means here."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP, errno.EINVAL}:
            raise
        raise NetworkError(
            f"{name} cannot be reached: {error.filename or 'a part of it'} is no plain file or folder, and no link in a "
            "folder remote is followed",
            hint="Remove what is there, and push again.",
        ) from error


def _chunks(file: IO[bytes]) -> Generator[bytes, None, None]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk
