"""Where wheels are published, what is published there today, and keeping the answers in a depot."""

from __future__ import annotations

import datetime as dt
import os
import queue
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from flashdepot.catalog.load import Catalog, Collection, Listing, encode, refreshed_path
from flashdepot.catalog.pages import Pages, PageToken
from flashdepot.catalog.published_files import (
    Page,
    PublishedFile,
    files_of_index,
    read_github_releases,
    read_huggingface_tree,
    to_wheels,
)
from flashdepot.errors import FlashdepotError, IntegrityError, NetworkError, UsageError
from flashdepot.facts import read_table
from flashdepot.files.disk import disk_errors, write_atomic
from flashdepot.files.documents import read_json, write_json
from flashdepot.model.codec import plain, read
from flashdepot.net.errors import UnreachableError
from flashdepot.net.fetch import require_network
from flashdepot.net.index import PackageIndex
from flashdepot.net.transport import IndexSettings, read_index_settings

_SHIPPED = Path(__file__).parent / "sources.toml"
_OWN = "sources.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}", re.ASCII)


class Source(msgspec.Struct, frozen=True):
    """A collection of wheels and where it is listed.

    ``format`` is how it lists its files: by an API, or as a package index (PEP 503). ``files`` is what the URLs of its files begin with, empty where the listing gives them whole.
    """

    name: str
    kind: Literal["official", "community"]
    format: Literal["github-releases", "huggingface-tree", "simple-index"]
    listing: str
    files: str
    page: str
    licence: str

    def __post_init__(self) -> None:
        """:raises ValueError: when a field is nothing that it may be."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is not a name: lower-case letters, digits, dots and hyphens")
        for field in ("listing", "page"):
            if not getattr(self, field).startswith(("https://", "http://", "file://")):
                raise ValueError(f"the {field} '{getattr(self, field)}' is not a URL")

    @classmethod
    def index(cls, url: str) -> Source:
        """A package index that a user names; ``NAME=URL`` gives it a name, else it takes that of its server."""
        name, equals, address = url.partition("=")
        if not equals or "/" in name:
            name, address = "", url
        try:
            parts = urlsplit(address)
        except ValueError as error:
            raise UsageError(
                f"'{url}' is not a URL: {error}.", hint="Name one: --index https://example.org/simple/"
            ) from error
        if "@" in parts.netloc:
            raise UsageError(
                "The URL of the index has a user or a password in it, and sources are kept as plain text.",
                hint="Put them into ~/.netrc, and name the index without them.",
            )
        if name in {source.name for source in _read_shipped()}:
            raise UsageError(
                f"'{name}' is already a source, which an index cannot replace.",
                hint="Give the index another name: flashdepot catalog update --index NAME=URL",
            )
        name = name or re.sub(r"[^a-z0-9.-]+", "-", (parts.hostname or "local").lower())
        try:
            return cls(name, "community", "simple-index", listing=address, files="", page=address, licence="")
        except ValueError as error:
            raise UsageError(
                f"'{url}' is not a package index: {error}.",
                hint="Name one: flashdepot catalog update --index NAME=https://example.org/simple/",
            ) from error


def read_sources(folder: Path) -> tuple[Source, ...]:
    """The shipped sources and the user's own in ``folder``; :raises UsageError: when those are not what they should be."""
    return tuple({source.name: source for source in (*_read_shipped(), *_read_own(folder))}.values())


def remember(folder: Path, source: Source) -> None:
    """Keep a source among the user's own, in place of one of the same name."""
    own = {known.name: known for known in _read_own(folder)} | {source.name: source}
    with disk_errors(folder):
        write_json(folder / _OWN, {"source": plain(list(own.values()))})


class _Own(msgspec.Struct):
    source: list[Source]


def _read_shipped() -> list[Source]:
    return read(read_table(_SHIPPED)["source"], list[Source])


def _read_own(folder: Path) -> list[Source]:
    path = folder / _OWN
    try:
        return read(read_json(path), _Own).source
    except FileNotFoundError:
        return []
    except (IntegrityError, ValueError) as error:
        raise UsageError(
            f"{path} is not a list of sources: {error}.",
            hint="Fix it, or remove it and name your indexes again: flashdepot catalog update --index URL",
        ) from error


_GITHUB = "https://api.github.com"
"""Whose token ``GITHUB_TOKEN`` is."""

_PROJECTS = ("flash-attn", "flash-attn-3")
"""What is asked of a package index, which has no list of projects worth reading for this."""


class RefreshOutcome(msgspec.Struct, frozen=True):
    """What came of asking one source: how many wheels it has, and how many came and went since the catalog was made.

    ``strange`` are entries that were skipped. ``error`` says why the source gave nothing; its listing then stays
    as it was.
    """

    source: str
    wheels: int = 0
    added: int = 0
    removed: int = 0
    unchanged: bool = False
    strange: tuple[str, ...] = ()
    error: FlashdepotError | None = None

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "source": self.source,
            "status": "failed" if self.error else "unchanged" if self.unchanged else "updated",
            "wheels": self.wheels,
            "added": self.added,
            "removed": self.removed,
            "skipped": list(self.strange),
        }


_NOBODY = 3.0
"""Seconds for the first answer of any source."""

_Answer = tuple[Source, "Page | None", bool, "FlashdepotError | None"]
"""A source, what it lists, whether all of that was known; or why it gave nothing."""


def refresh(sources: Iterable[Source], known: Catalog, folder: Path) -> Iterator[RefreshOutcome]:
    """Ask sources, all at once, and write the listing of each that answers; yields as it goes."""
    require_network("Refreshing the catalog")
    settings = read_index_settings()
    asked = list(sources)
    reached = False
    for source, page, unchanged, error in _answers(asked, folder, settings):
        reached = reached or not isinstance(error, UnreachableError)
        if page is None:
            yield RefreshOutcome(source.name, error=error)
            continue
        listing = list_source(source, page.files, dt.datetime.now(tz=dt.timezone.utc))
        with disk_errors(folder):
            write_atomic(refreshed_path(folder, source.name), encode([listing]))
        now, before = ({w.url for w in ws if w.source == source.name} for ws in (listing.wheels, known.wheels))
        yield RefreshOutcome(
            source.name,
            wheels=len(listing.wheels),
            added=len(now - before),
            removed=len(before - now),
            unchanged=unchanged,
            strange=page.strange,
        )
    if not reached and len(asked) > 1:
        raise _nobody(asked)


def _answers(asked: Sequence[Source], folder: Path, settings: IndexSettings) -> Iterator[_Answer]:
    """Ask all at once, in threads that do not hold the process up when a name cannot be resolved."""
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    reached = Event()

    def ask(source: Source) -> None:
        try:
            answers.put((source, *_ask(source, folder, settings, reached.set), None))
            reached.set()
        except FlashdepotError as error:
            answers.put((source, None, False, error))

    for source in asked:
        Thread(target=ask, args=(source,), daemon=True).start()
    deadline = time.monotonic() + _NOBODY
    left = len(asked)
    while left:
        try:
            yield answers.get(timeout=None if reached.is_set() else max(0.0, deadline - time.monotonic()))
            left -= 1
        except queue.Empty:  # noqa: PERF203  (a loop of a few sources)
            if not reached.is_set():
                raise _nobody(asked) from None


def _nobody(asked: Sequence[Source]) -> NetworkError:
    hosts = sorted({urlsplit(source.listing).hostname or source.listing for source in asked})
    return NetworkError(
        f"No source of the catalog can be reached ({', '.join(hosts)}); it stays as it is.",
        hint="Check the network and the proxy (HTTPS_PROXY).",
    )


def list_source(source: Source, files: Iterable[PublishedFile], listed: dt.datetime) -> Listing:
    """A source's listing from its files."""
    collection = Collection(
        source.name, source.kind, source.page, source.licence, listed.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
    return Listing(collection, to_wheels(files, source=source.name, official=source.kind == "official"))


def _ask(source: Source, folder: Path, settings: IndexSettings, on_answer: Callable[[], None]) -> tuple[Page, bool]:
    """What a source lists, and whether all of it was known; ``on_answer`` is called when its server begins to answer."""
    if source.format == "simple-index":
        return _ask_index(source, settings), False
    github = source.format == "github-releases"
    read = read_github_releases if github else partial(read_huggingface_tree, files=source.files)
    secret = os.environ.get("GITHUB_TOKEN", "") if github else ""
    token = PageToken(_GITHUB, secret) if secret else None
    with Pages(source.listing, folder / "pages", settings, token=token, on_answer=on_answer) as pages:
        return pages.read(read)


def _ask_index(source: Source, settings: IndexSettings) -> Page:
    with PackageIndex(source.listing, settings) as index:
        packages = [package for project in _PROJECTS for package in index.packages(project)]
    if not packages:
        raise NetworkError(
            f"{index.url} has no {' and no '.join(_PROJECTS)}.",
            hint="Name the address that you would give pip as --index-url; it often ends in /simple/.",
        )
    return files_of_index((p.filename, p.url, p.size, p.digests.get("sha256")) for p in packages if not p.is_yanked)
