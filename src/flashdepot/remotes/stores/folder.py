"""A remote in a folder: a network file system, a disk that travels."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import Received
from flashdepot.system.files import atomic_file

_CHUNK = 1 << 20


class FolderStore:
    """Files in a folder of this machine."""

    def __init__(self, remote: RemoteSettings) -> None:
        self._root = Path(url2pathname(urlsplit(remote.url).path))

    def read(self, place: str, longest: int) -> bytes | None:
        """See :class:`Store`."""
        try:
            with (self._root / place).open("rb") as file:
                data = file.read(longest + 1)
        except FileNotFoundError:
            self._require_root()
            return None
        except OSError as error:
            raise self._refused(place, "read", error) from error
        if len(data) > longest:
            raise IntegrityError(f"{self._root / place} has more than {longest} bytes.")
        return data

    def fetch(self, place: str, destination: Path, received: Received) -> None:
        """See :class:`Store`."""
        try:
            source = (self._root / place).open("rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._refused(place, "read", error) from error
        with source, destination.open("ab") as file:
            source.seek(file.tell())
            while chunk := self._chunk(source, place):
                file.write(chunk)
                received(len(chunk))

    def size(self, place: str) -> int | None:
        """See :class:`Store`."""
        try:
            return (self._root / place).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(place, "read", error) from error

    def write(self, place: str, source: Path | bytes) -> None:
        """See :class:`Store`."""
        try:
            with atomic_file(self._root / place) as temporary:
                if isinstance(source, bytes):
                    temporary.write_bytes(source)
                else:
                    shutil.copyfile(source, temporary)
        except OSError as error:
            raise self._refused(place, "written", error) from error

    def _chunk(self, source: object, place: str) -> bytes:
        try:
            chunk: bytes = source.read(_CHUNK)  # type: ignore[attr-defined]
        except OSError as error:
            raise self._refused(place, "read", error) from error
        return chunk

    def _require_root(self) -> None:
        """A folder that is not there is a disk that is not mounted, and no answer."""
        if not self._root.is_dir():
            raise NetworkError(f"there is no folder {self._root}", hint="Mount it, or make it.")

    def _refused(self, place: str, done: str, error: OSError) -> NetworkError:
        return NetworkError(f"{self._root / place} cannot be {done}: {error.strerror}")
