"""A remote on a web server: read by GET, written by PUT where the server takes it (WebDAV)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import requests
import urllib3

from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import Received
from flashdepot.system.index_settings import read_index_settings
from flashdepot.system.index_transport import open_session
from flashdepot.system.network_errors import NotThereError, network_errors
from flashdepot.system.patience import status

_CHUNK = 1 << 16
_STALLED = 10.0
_WRITING = 300.0
_PARTIAL, _UNSATISFIABLE = 206, 416
_REFUSED = {401, 403}
_IDENTITY = {"Accept-Encoding": "identity"}


class WebStore:
    """Files of a web server, with the certificates and the proxy that the user's pip has, and ``~/.netrc``."""

    def __init__(self, remote: RemoteSettings) -> None:
        self._root = remote.url.rstrip("/")
        self._timeout = remote.timeout
        self._session = open_session(self._root, read_index_settings())

    def read(self, place: str, longest: int) -> bytes | None:
        """See :class:`Store`."""
        end = time.monotonic() + self._timeout
        try:
            with self._errors(place), self._get(place, self._timeout) as response:
                response.raise_for_status()
                data = bytearray()
                for chunk in _chunks(response):
                    data += chunk
                    if len(data) > longest:
                        raise IntegrityError(f"{self._root}/{place} has more than {longest} bytes.")
                    if time.monotonic() > end:
                        raise NetworkError(f"{self._root} has not sent a record within {self._timeout:g} s")
                _require_whole(response, len(data))
        except NotThereError:
            return None
        return bytes(data)

    def fetch(self, place: str, destination: Path, received: Received) -> None:
        """See :class:`Store`."""
        have = destination.stat().st_size if destination.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        try:
            with self._errors(place), self._get(place, _STALLED, headers) as response:
                if response.status_code == _UNSATISFIABLE and have:
                    return
                response.raise_for_status()
                goes_on = response.status_code == _PARTIAL
                before = 0
                with destination.open("ab" if goes_on else "wb", buffering=0) as file:
                    for chunk in _chunks(response):
                        file.write(chunk)
                        before += len(chunk)
                        received(len(chunk))
                _require_whole(response, before)
        except NotThereError:
            raise FileNotFoundError(place) from None

    def size(self, place: str) -> int | None:
        """See :class:`Store`."""
        try:
            with self._errors(place):
                response = self._session.head(
                    f"{self._root}/{place}", headers=_IDENTITY, timeout=_STALLED, allow_redirects=True
                )
                response.raise_for_status()
        except NotThereError:
            return None
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else None

    def write(self, place: str, source: Path | bytes) -> None:
        """See :class:`Store`."""
        with self._errors(place, "written"), contextlib.ExitStack() as stack:
            data = source if isinstance(source, bytes) else stack.enter_context(source.open("rb"))
            self._session.put(f"{self._root}/{place}", data=data, timeout=(_STALLED, _WRITING)).raise_for_status()

    def _get(self, place: str, timeout: float, headers: dict[str, str] | None = None) -> requests.Response:
        # Some servers call a file by its ending "gzip-encoded", and a client that believes it gets other bytes.
        return self._session.get(
            f"{self._root}/{place}", headers={**_IDENTITY, **(headers or {})}, stream=True, timeout=timeout
        )

    @contextlib.contextmanager
    def _errors(self, place: str, done: str = "fetched") -> Iterator[None]:
        try:
            with network_errors(place, self._root, "see 'flashdepot remote ls'."):
                yield
        except NotThereError:
            if done == "fetched":
                raise
            raise NetworkError(f"{self._root} cannot be written: it knows no such place") from None
        except NetworkError as error:
            if done == "fetched" or not isinstance(error.__cause__, requests.HTTPError):
                raise
            response = error.__cause__.response
            code = response.status_code if response is not None else 0
            raise NetworkError(
                f"{self._root} cannot be written: it answers {status(error.__cause__)}",
                hint="Put a user and a password that may write there into ~/.netrc."
                if code in _REFUSED
                else "A web server takes files only where it is set up for PUT; docs/remotes.md has the lines for nginx.",
            ) from error


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """The bytes as they were sent and as soon as they come, whatever encoding the server claims for them."""
    try:
        yield from iter(lambda: response.raw.read1(_CHUNK, decode_content=False), b"")
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(error) from error


def _require_whole(response: requests.Response, received: int) -> None:
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) != received:
        raise requests.ConnectionError(f"the connection ended after {received} of {length} bytes")
