"""Pages of a source's API: fetched only when they have changed, and kept with the answer's etag."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
import requests
from requests.auth import AuthBase

from flashdepot import __version__
from flashdepot.catalog.published_files import Page, PublishedFile
from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.files.disk import disk_errors
from flashdepot.files.documents import read_json, write_json
from flashdepot.model.codec import plain, read
from flashdepot.net.errors import NotThereError, network_errors, patiently, retry_after
from flashdepot.net.transport import IndexSettings, open_session, read_body

_LONGEST_ANSWER = 64 << 20
_MOST_PAGES = 500

Reader = Callable[[Any], Page]
"""Reads a page's document; raises ValueError when it is not what it should be."""


class Pages:
    """The pages of one source. Close it, or use it as a context manager.

    ``folder`` keeps what they held, ``token`` is sent to its own server only, ``on_answer`` is called for each answer.
    """

    def __init__(
        self,
        start: str,
        folder: Path,
        settings: IndexSettings,
        *,
        token: PageToken | None = None,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._start, self._folder, self._timeout = start, folder, settings.timeout
        self._session = open_session(start, settings)
        self._session.headers["Accept"] = "application/json"
        self._session.hooks["response"].append(lambda *_, **__: on_answer())
        if token:
            self._session.auth = token

    def __enter__(self) -> Pages:  # noqa: PYI034  (Self is in typing from Python 3.11 on)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def read(self, reader: Reader) -> tuple[Page, bool]:
        """Read every page, following the links to the next; :returns: all of them together, and whether all were known.

        :raises NetworkError: when a page cannot be fetched or is not what it should be. Pages that were read are kept, so
            that the next attempt continues from there.
        """
        url = self._start
        seen: dict[str, _Kept] = {}
        is_known = True
        while url:
            if url in seen or len(seen) == _MOST_PAGES:
                raise NetworkError(
                    f"{self._start} has no end: its pages lead to {url} again, or are more than {_MOST_PAGES}.",
                    hint="Nothing was changed. Try again later.",
                )
            kept, fresh = self._page(url, reader)
            seen[url] = kept
            is_known = is_known and not fresh
            url = kept.next
        files = tuple(file for kept in seen.values() for file in kept.files)
        strange = tuple(line for kept in seen.values() for line in kept.strange)
        return Page(files, strange), is_known

    def _page(self, url: str, reader: Reader) -> tuple[_Kept, bool]:
        path = self._folder / f"{sha256(url.encode()).hexdigest()[:32]}.json"
        kept = _Kept.load(path)
        with network_errors(url, urlsplit(url).hostname or url, "try again later: what was known before is kept."):
            answer = patiently(lambda: self._get(url, kept.etag if kept else ""))
        if answer is None and kept:
            return kept, False
        if answer is None:
            raise NetworkError(f"{url} answers that it has not changed, but no earlier copy of it is stored.")
        try:
            page = reader(json.loads(answer.body))
        except (ValueError, RecursionError) as error:
            raise NetworkError(
                f"{url} does not answer like its API: {error}.",
                hint="A proxy may have answered in its place. What was known before is kept; try again later.",
            ) from error
        fresh = _Kept(answer.etag, answer.next, page.files, page.strange, __version__)
        with disk_errors(path.parent):
            write_json(path, plain(fresh))
        return fresh, True

    def _get(self, url: str, etag: str) -> _Answer | None:
        """An answer, or ``None`` when the page still has this etag."""
        headers = {"If-None-Match": etag} if etag else {}
        with self._session.get(url, headers=headers, timeout=self._timeout, stream=True) as response:
            if response.status_code == HTTPStatus.NOT_MODIFIED:
                return None
            if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                response.raise_for_status()
            if response.status_code != HTTPStatus.OK:
                raise _refusal(url, response)
            try:
                body = read_body(response, _LONGEST_ANSWER)
            except ValueError as error:
                hint = "What was known before is kept."
                raise NetworkError(f"{url} is not a page of a listing: {error}.", hint=hint) from error
            return _Answer(body, response.headers.get("ETag", ""), self._next(response))

    def _next(self, response: requests.Response) -> str:
        """The URL of the page after this one, empty after the last."""
        link = response.links.get("next", {}).get("url", "")
        try:
            url = urljoin(str(response.url), link) if link else ""
            elsewhere = bool(url) and urlsplit(url)[:2] != urlsplit(self._start)[:2]
        except ValueError:
            elsewhere = True
        if elsewhere:
            raise NetworkError(f"{self._start} leads to another server: {link}.", hint="Nothing was changed.")
        return url


@dataclass(frozen=True)
class _Answer:
    body: bytes
    etag: str
    next: str


class _Kept(msgspec.Struct, frozen=True):
    """What a page held when it had this etag, as this version of flashdepot read it."""

    etag: str
    next: str
    files: tuple[PublishedFile, ...]
    strange: tuple[str, ...]
    flashdepot: str

    @classmethod
    def load(cls, path: Path) -> _Kept | None:
        """What was kept, or ``None``; what cannot be read is fetched again."""
        try:
            kept = read(read_json(path), cls)
        except (OSError, IntegrityError, ValueError):
            return None
        return kept if kept.flashdepot == __version__ else None


@dataclass(frozen=True)
class PageToken(AuthBase):
    """A token and the one server that may see it, ``https://api.github.com``; to any other nothing is sent.

    requests asks it for the first request of a chain only, and takes what it set away when a redirect leads elsewhere.
    """

    server: str
    text: str

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the token to a request to its server."""
        if str(request.url).startswith(f"{self.server}/"):
            request.headers["Authorization"] = f"Bearer {self.text}"
        return request


def _refusal(url: str, response: requests.Response) -> NetworkError:
    """The error for an answer that is neither a page nor one that passes.

    GitHub answers 403 or 429 when a limit of requests is reached, with ``Retry-After`` or ``X-RateLimit-Reset``
    ("Rate limits for the REST API"); the Hugging Face Hub answers 429.
    """
    status = f"{response.status_code} {response.reason}"
    headers = response.headers
    used_up = headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in headers
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS or (
        response.status_code == HTTPStatus.FORBIDDEN and used_up
    ):
        until = _again_at(response)
        when = f"until {until:%Y-%m-%d %H:%M:%S} UTC" if until else "for now, and it does not say until when"
        return NetworkError(
            f"{urlsplit(url).hostname} answers {status}: it takes no more requests {when}. What was known before is kept.",
            hint="Run it again then: flashdepot catalog update (GitHub takes more requests with GITHUB_TOKEN set; "
            "pages that are known already are not counted)",
        )
    kind = NotThereError if response.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE} else NetworkError
    return kind(
        f"{url} answers {status}.", hint="What was known before is kept. Check the source: flashdepot catalog stats"
    )


def _again_at(response: requests.Response) -> dt.datetime | None:
    """When requests are taken again: ``Retry-After``, or ``X-RateLimit-Reset`` in seconds since the epoch."""
    try:
        if wait := retry_after(requests.HTTPError(response=response)):
            return dt.datetime.now(tz=dt.timezone.utc) + dt.timedelta(seconds=wait)
        reset = response.headers.get("X-RateLimit-Reset", "")
        return dt.datetime.fromtimestamp(int(reset), tz=dt.timezone.utc) if reset else None
    except (ValueError, OverflowError, OSError):
        return None
