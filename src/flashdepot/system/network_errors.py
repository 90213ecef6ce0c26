"""Errors of the network in plain words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timezone

import requests
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema

from flashdepot.errors import NetworkError
from flashdepot.system.patience import retry_after, status


class NotThereError(NetworkError):
    """The server answers, and has no such file (any more)."""


_GONE = {404, 410}
_REFUSED = {401, 403, 407}


@contextlib.contextmanager
def network_errors(wanted: str, server: str, elsewhere: str) -> Iterator[None]:
    """Say what went wrong on the way to a thing, and what fixes it.

    :param wanted: what was to be fetched.
    :param server: the address that was asked, without credentials.
    :param elsewhere: how to name another place: ``name another index: PIP_INDEX_URL=URL``.
    :raises NetworkError: for every error of requests.
    """
    try:
        yield
    except requests.RequestException as error:
        raise _explain(error, wanted, server, elsewhere) from error


def _explain(error: requests.RequestException, wanted: str, server: str, elsewhere: str) -> NetworkError:
    cannot = f"{wanted} cannot be fetched:"
    if isinstance(error, requests.exceptions.SSLError):
        return NetworkError(
            f"{cannot} the certificate of {server} is not trusted ({innermost(error)}).",
            hint="Name your organisation's certificate authorities: PIP_CERT=FILE, or pip config set global.cert FILE",
        )
    if isinstance(error, requests.HTTPError):
        gone = error.response is not None and error.response.status_code in _GONE
        kind = NotThereError if gone else NetworkError
        return kind(f"{cannot} {server} answers {status(error)}{_asked(error)}.", hint=_cure(error, elsewhere))
    if isinstance(error, (InvalidURL, InvalidSchema, MissingSchema, requests.TooManyRedirects)):
        return NetworkError(f"{cannot} {error}.", hint=f"Check the address, or {elsewhere}")
    return NetworkError(
        f"{cannot} {server} cannot be reached ({innermost(error)}).",
        hint=f"Check the network and the proxy (HTTPS_PROXY, PIP_PROXY), or {elsewhere}",
    )


def _asked(error: requests.HTTPError) -> str:
    wait = retry_after(error, datetime.now(timezone.utc))
    return f" and asks to come back in {wait:.0f} s" if wait else ""


def _cure(error: requests.HTTPError, elsewhere: str) -> str:
    code = error.response.status_code if error.response is not None else 0
    if code in _GONE:
        return f"It was never there, or was taken away: {elsewhere}"
    if code in _REFUSED:
        return f"Check the credentials in ~/.netrc or in the address, or {elsewhere}"
    return f"Try again later, or {elsewhere}"


def innermost(error: BaseException) -> str:
    """Unwrap requests' and urllib3's layers down to the reason: ``Connection refused``."""
    reason: object = error
    while isinstance(reason, BaseException):
        inner = getattr(reason, "reason", None) or (reason.args[0] if reason.args else None)
        if not isinstance(inner, BaseException):
            break
        reason = inner
    return getattr(reason, "strerror", None) or str(reason).rpartition(": ")[2]
