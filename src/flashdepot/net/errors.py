"""Errors of the network: tried again where that may help, and in plain words."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import TypeVar

import requests
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema
from urllib3.exceptions import IncompleteRead, InvalidHeader
from urllib3.util import Retry

from flashdepot.errors import NetworkError

WAITS = (0.5, 1.0, 2.0)
LONGEST_WAIT = 120.0
LONGEST_OF_ALL = 300.0
"""Seconds to wait in all, whatever a server asks for."""

_NOTED_WAIT = 2.0
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_T = TypeVar("_T")

Note = Callable[[str], None]


class Patience:
    """How often to try again: a few times with growing waits, and afresh whenever something was achieved."""

    def __init__(self, on_note: Note = lambda _note: None) -> None:
        self._on_note = on_note
        self._tries = 0
        self._waited = 0.0

    def refill(self) -> None:
        """Start counting tries again, since the last one got something; not the seconds that it waits in all."""
        self._tries = 0

    def endure(self, error: requests.RequestException) -> None:
        """Wait before the next try; :raises requests.RequestException: the error, if it does not pass or came too often."""
        asked = retry_after(error)
        if not _passes(error) or self._tries >= len(WAITS) or asked > LONGEST_WAIT:
            raise error
        wait = max(WAITS[self._tries], asked)
        self._waited += wait
        if self._waited > LONGEST_OF_ALL:
            raise error
        self._tries += 1
        if wait >= _NOTED_WAIT and isinstance(error, requests.HTTPError):
            self._on_note(f"The server answers {status(error)}: trying again in {wait:.0f} s.")
        time.sleep(wait)


def patiently(action: Callable[[], _T]) -> _T:
    """Do something, again after a wait while the failure is one that passes."""
    patience = Patience()
    while True:
        try:
            return action()
        except requests.RequestException as error:  # noqa: PERF203  (a loop of four)
            patience.endure(error)


def _passes(error: requests.RequestException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, requests.HTTPError):
        return error.response is not None and error.response.status_code in _TRANSIENT_STATUS
    if isinstance(error, (requests.exceptions.SSLError, requests.exceptions.ProxyError)):
        return False
    return isinstance(error, (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError))


def retry_after(error: requests.RequestException) -> float:
    """Seconds that the server asks to wait (RFC 9110, 10.2.3: a number or a date); 0 if it does not."""
    text = error.response.headers.get("Retry-After", "") if error.response is not None else ""
    try:
        return float(Retry().parse_retry_after(text)) if text else 0.0
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


def status(error: requests.HTTPError) -> str:
    """The answer as text: ``503 Service Unavailable``."""
    return f"{error.response.status_code} {error.response.reason}" if error.response is not None else str(error)


class NotThereError(NetworkError):
    """The server answers, and has no such file (any more)."""


class ProxyFailure(requests.exceptions.ProxyError):
    """A proxy that cannot be reached or refuses; ``proxy`` is its address without credentials."""

    def __init__(self, error: requests.exceptions.ProxyError, proxy: str) -> None:
        super().__init__(*error.args, request=error.request)
        self.proxy = proxy


class UnreachableError(NetworkError):
    """The server did not take the connection, or dropped it."""


_GONE = {404, 410}
_PROXY_CREDENTIALS = (
    "Give the proxy a user and a password: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT (HTTP_PROXY, PIP_PROXY)"
)
_REFUSED = {401, 403}
PROXY_AUTHENTICATION = 407


@contextlib.contextmanager
def network_errors(
    wanted: str, server: str, elsewhere: str, credentials: str = "~/.netrc or in the address"
) -> Iterator[None]:
    """Say what went wrong on the way to a thing, and what fixes it; :raises NetworkError: for every error of requests.

    :param server: the address that was asked, without credentials.
    :param elsewhere: how to name another place: ``name another index: PIP_INDEX_URL=URL``.
    :param credentials: where a user and a password for the server may be.
    """
    try:
        yield
    except requests.RequestException as error:
        raise _explain(error, wanted, server, elsewhere, credentials) from error


def _explain(
    error: requests.RequestException, wanted: str, server: str, elsewhere: str, credentials: str
) -> NetworkError:
    cannot = f"{wanted} cannot be fetched:"
    if isinstance(error, requests.exceptions.SSLError):
        if re.search("not yet valid|has expired", why := _in_words(error)):
            return NetworkError(
                f"{cannot} the certificate of {server} is not valid at this time ({why}): this machine's clock says "
                f"{datetime.now(tz=timezone.utc):%Y-%m-%d %H:%M} UTC.",
                hint=f"If the clock is wrong, set it. If it is right, the server needs a new certificate: {elsewhere}",
            )
        return NetworkError(
            f"{cannot} the certificate of {server} is not trusted ({why}).",
            hint="Name your organisation's certificate authorities: PIP_CERT=FILE, or pip config set global.cert FILE",
        )
    if isinstance(error, requests.HTTPError):
        code = error.response.status_code if error.response is not None else 0
        asked = f" and asks to come back in {wait:.0f} s" if (wait := retry_after(error)) else ""
        said = f"{cannot} {server} answers {status(error)}{asked}."
        if code in _GONE:
            return NotThereError(said, hint=f"It was never there, or was taken away: {elsewhere}")
        if code == PROXY_AUTHENTICATION:
            return NetworkError(said, hint=_PROXY_CREDENTIALS)
        refused = f"Check the credentials in {credentials}"
        return NetworkError(said, hint=f"{refused if code in _REFUSED else 'Try again later'}, or {elsewhere}")
    if isinstance(error, (InvalidURL, InvalidSchema, MissingSchema, requests.TooManyRedirects)):
        return NetworkError(
            f"{cannot} {str(error).rstrip('.')}.", hint=f"Check the address and the proxy, or {elsewhere}"
        )
    if isinstance(reason := _innermost(error), IncompleteRead):
        said = f"{server} ended its answer after {reason.partial} bytes, and {reason.expected} were to come"
        return NetworkError(f"{cannot} {said}.", hint=f"Try again, or {elsewhere}")
    if isinstance(error, ProxyFailure):
        return _of_proxy(error, cannot, server, elsewhere)
    kind = UnreachableError if isinstance(error, requests.ConnectionError) else NetworkError
    return kind(
        f"{cannot} {server} cannot be reached ({_in_words(error)}).",
        hint=f"Check the network and the proxy (HTTPS_PROXY, PIP_PROXY), or {elsewhere}",
    )


def _of_proxy(error: ProxyFailure, cannot: str, server: str, elsewhere: str) -> NetworkError:
    """A proxy's refusal to make a tunnel (RFC 9110, 9.3.6), or that there is no proxy."""
    refusal = re.search(r"Tunnel connection failed: (\d{3}.*)", str(_innermost(error)))
    if refusal is None:
        return UnreachableError(
            f"{cannot} the proxy {error.proxy} cannot be reached ({_in_words(error)}).",
            hint="Check its address: HTTPS_PROXY, HTTP_PROXY, PIP_PROXY, or proxy in pip config list",
        )
    asks = refusal[1].startswith(str(PROXY_AUTHENTICATION))
    return NetworkError(
        f"{cannot} the proxy {error.proxy} answers {refusal[1].strip()} and does not lead to {server}.",
        hint=_PROXY_CREDENTIALS if asks else f"Ask who runs the proxy to allow that server, or {elsewhere}",
    )


def _innermost(error: BaseException) -> BaseException:
    """Unwrap requests' and urllib3's layers down to the reason."""
    layers = [getattr(error, "reason", None), *error.args]
    wrapped = next((one for one in layers if isinstance(one, BaseException)), None)
    return error if wrapped is None else _innermost(wrapped)


def _in_words(error: BaseException) -> str:
    """The reason of an error, as ``Connection refused``."""
    reason = _innermost(error)
    text = getattr(reason, "strerror", None) or str(reason).rpartition(": ")[2].rstrip(')"')
    return f"{text}{')' * (text.count('(') - text.count(')'))}"
