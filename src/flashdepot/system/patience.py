"""Trying again what the network may do better the next time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

import requests

WAITS = (0.5, 1.0, 2.0)
LONGEST_WAIT = 120.0
LONGEST_OF_ALL = 300.0
"""Seconds that are waited altogether, whatever a server asks for."""

_NOTED_WAIT = 2.0
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_REFILLS = 100
_T = TypeVar("_T")

Note = Callable[[str], None]


class Patience:
    """How often to try again: a few times with growing waits, and afresh whenever something was achieved."""

    def __init__(self, on_note: Note) -> None:
        self._on_note = on_note
        self._tries = 0
        self._refills = 0
        self._waited = 0.0

    def refill(self) -> None:
        """Start counting again, since the last try got something; not for ever."""
        self._refills += 1
        if self._refills <= _REFILLS:
            self._tries = 0

    def endure(self, error: requests.RequestException) -> None:
        """Wait before the next try, as long as the server asks for where it does.

        :raises requests.RequestException: the error itself, when it does not pass or has come too often.
        """
        asked = retry_after(error, datetime.now(timezone.utc))
        if not passes(error) or self._tries >= len(WAITS) or (asked or 0) > LONGEST_WAIT:
            raise error
        wait = max(WAITS[self._tries], asked or 0)
        self._waited += wait
        if self._waited > LONGEST_OF_ALL:
            raise error
        self._tries += 1
        if wait >= _NOTED_WAIT and isinstance(error, requests.HTTPError):
            self._on_note(f"The server answers {status(error)}: trying again in {wait:.0f} s.")
        time.sleep(wait)


def patiently(action: Callable[[], _T], on_note: Note) -> _T:
    """Do something, again after a wait while the failure is one that passes."""
    patience = Patience(on_note)
    while True:
        try:
            return action()
        except requests.RequestException as error:  # noqa: PERF203  (a loop of four)
            patience.endure(error)


def passes(error: requests.RequestException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, requests.HTTPError):
        return error.response is not None and error.response.status_code in _TRANSIENT_STATUS
    if isinstance(error, (requests.exceptions.SSLError, requests.exceptions.ProxyError)):
        return False
    return isinstance(error, (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError))


def retry_after(error: requests.RequestException, now: datetime) -> float | None:
    """Seconds that the server asks to wait (RFC 9110, 10.2.3: a number of seconds or a date); ``None`` if it does not."""
    text = error.response.headers.get("Retry-After", "").strip() if error.response is not None else ""
    if text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return max(0.0, math.ceil((moment - now).total_seconds()))
    except (TypeError, ValueError, OverflowError, LookupError):
        return None


def status(error: requests.HTTPError) -> str:
    """The answer in words: ``503 Service Unavailable``."""
    return f"{error.response.status_code} {error.response.reason}" if error.response is not None else str(error)
