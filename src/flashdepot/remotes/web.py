"""A remote on a web server: read by GET, written by PUT where the server takes it (WebDAV)."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

import requests

from flashdepot.errors import NetworkError
from flashdepot.model.remote import RemoteSettings
from flashdepot.net.errors import PROXY_AUTHENTICATION, NotThereError, network_errors, status
from flashdepot.net.transport import content_range, length_of, open_session, raw_chunks, read_index_settings
from flashdepot.remotes.stores import Opened

_STALLED = 10.0
_WRITING = 300.0
_OK, _PARTIAL = 200, 206
_REFUSED = {401, 403}
# Some servers call a file by its ending "gzip-encoded", and a client that trusts it gets other bytes.
_IDENTITY = {"Accept-Encoding": "identity"}


class WebBackend:
    """Files of a web server, with the certificates and the proxy of the user's pip and ``~/.netrc``, unlike obstore's."""

    def __init__(self, remote: RemoteSettings) -> None:
        self._root = remote.url.rstrip("/")
        self._session = open_session(self._root, read_index_settings())

    def open(self, name: str, start: int) -> Opened:
        """See :class:`Backend`. A server that does not answer a range as it must sends the whole file."""
        with self._read_errors(name):
            if start:
                response = self._get(name, {"Range": f"bytes={start}-"})
                if response.status_code == _OK:
                    return Opened(0, self._chunks(name, response))
                if response.status_code == _PARTIAL and content_range(response)[0] == start:
                    return Opened(start, self._chunks(name, response))
                response.close()
            response = self._get(name, {})
            if response.status_code == _OK:
                return Opened(0, self._chunks(name, response))
            with response:
                response.raise_for_status()
                raise requests.HTTPError(response=response)

    def size(self, name: str) -> int | None:
        """See :class:`Backend`."""
        with self._read_errors(name):
            url = f"{self._root}/{name}"
            response = self._session.head(url, headers=_IDENTITY, timeout=_STALLED, allow_redirects=True)
            response.raise_for_status()
        return length_of(response)

    def write(self, name: str, source: Path | bytes) -> None:
        """See :class:`Backend`. A redirect is refused: what follows it forgets the file, or sends it somewhere else."""
        with self._write_errors(name), contextlib.ExitStack() as stack:
            data = source if isinstance(source, bytes) else stack.enter_context(source.open("rb"))
            response = self._session.put(
                f"{self._root}/{name}", data=data, timeout=(_STALLED, _WRITING), allow_redirects=False
            )
            response.raise_for_status()
            if response.is_redirect:
                raise requests.HTTPError(response=response)

    def _get(self, name: str, headers: dict[str, str]) -> requests.Response:
        return self._session.get(
            f"{self._root}/{name}", headers={**_IDENTITY, **headers}, stream=True, timeout=_STALLED
        )

    def _chunks(self, name: str, response: requests.Response) -> Generator[bytes, None, None]:
        with self._read_errors(name), response:
            yield from raw_chunks(response, at_once=True)

    @contextlib.contextmanager
    def _read_errors(self, name: str) -> Iterator[None]:
        try:
            with network_errors(name, self._root, "see 'flashdepot remote ls'.", "~/.netrc"):
                yield
        except NotThereError:
            raise FileNotFoundError(name) from None

    @contextlib.contextmanager
    def _write_errors(self, name: str) -> Iterator[None]:
        try:
            with self._read_errors(name):
                yield
        except NetworkError as error:
            cause = error.__cause__
            if not isinstance(cause, requests.HTTPError):
                raise
            code = cause.response.status_code if cause.response is not None else 0
            if code == PROXY_AUTHENTICATION:
                raise
            raise NetworkError(
                f"{self._root} cannot be written: it answers {status(cause)}",
                hint="Put a user and a password that may write there into ~/.netrc."
                if code in _REFUSED
                else "A web server takes files only where it is set up for PUT; docs/remotes.md has the lines for nginx.",
            ) from error
