"""Asking the sources what they publish today, and keeping the answers in a depot."""

from __future__ import annotations

import datetime as dt
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flashdepot.catalog.load import Catalog, refreshed_path
from flashdepot.catalog.packing import Collection, Listing, encode
from flashdepot.catalog.pages import Pages, PageToken, UnreachableError
from flashdepot.catalog.published_files import (
    Page,
    PublishedFile,
    files_of_index,
    read_github_releases,
    read_huggingface_tree,
    to_wheels,
)
from flashdepot.catalog.sources import Format, Source
from flashdepot.errors import FlashdepotError, NetworkError
from flashdepot.system.files import disk_errors, write_atomic
from flashdepot.system.index import PackageIndex
from flashdepot.system.index_settings import IndexSettings, read_index_settings
from flashdepot.system.net import require_network

_GITHUB = "https://api.github.com"
"""Whose token ``GITHUB_TOKEN`` is."""

_PROJECTS = ("flash-attn", "flash-attn-3")
"""What is asked of a package index, which has no list of projects worth reading for this."""


class RefreshOutcome(msgspec.Struct, frozen=True):
    """What came of asking one source: how many wheels it has, and how many came and went since the catalog was made.

    ``strange`` are entries that were passed over. ``error`` says why the source gave nothing; its listing then stays
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
            "passed_over": list(self.strange),
        }


_NOBODY = 3.0
"""Seconds for the first answer of any source."""

_Answer = tuple[Source, "Page | None", bool, "FlashdepotError | None"]
"""A source, what it lists, whether all of that was known; or why it gave nothing."""


def refresh(sources: Iterable[Source], known: Catalog, folder: Path) -> Iterator[RefreshOutcome]:
    """Ask sources, all at once, and write the listing of each that answers; yields as it goes.

    :raises NetworkError: when the network is forbidden, or none of several can be reached.
    :raises MissingToolError: when the depot may not be written.
    """
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


def list_source(source: Source, files: Iterable[PublishedFile], listed: dt.datetime, *, seen: bool = True) -> Listing:
    """A source's listing from its files; ``seen`` is false where they were computed and not found."""
    collection = Collection(
        source.name, source.kind, source.page, source.licence, listed.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
    return Listing(collection, to_wheels(files, source=source.name, official=source.kind == "official", seen=seen))


def _ask(source: Source, folder: Path, settings: IndexSettings, on_answer: Callable[[], None]) -> tuple[Page, bool]:
    """What a source lists, and whether all of it was known; ``on_answer`` is called when its server begins to answer."""
    if source.format is Format.INDEX:
        return _ask_index(source, settings), False
    github = source.format is Format.GITHUB
    read = read_github_releases if github else partial(read_huggingface_tree, files=source.files)
    secret = os.environ.get("GITHUB_TOKEN", "") if github else ""
    token = PageToken(_GITHUB, secret) if secret else None
    with Pages(source.listing, folder / "pages", settings, token=token, on_answer=on_answer) as pages:
        listed = pages.read(read)
    return listed.page, listed.unchanged == listed.pages


def _ask_index(source: Source, settings: IndexSettings) -> Page:
    with PackageIndex(source.listing, settings) as index:
        packages = [package for project in _PROJECTS for package in index.packages(project)]
    if not packages:
        raise NetworkError(
            f"{index.url} has no {' and no '.join(_PROJECTS)}.",
            hint="Name the address that pip would be given with --index-url; it often ends in /simple/.",
        )
    return files_of_index((p.filename, p.url, p.size, p.digests.get("sha256")) for p in packages if not p.is_yanked)
