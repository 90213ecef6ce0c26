"""Asking the sources what they publish today, and keeping the answers in a depot."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.catalog.load import Catalog, refreshed_path
from flashdepot.catalog.packing import Collection, Listing, encode
from flashdepot.catalog.pages import Pages, PageToken
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


def refresh(sources: Iterable[Source], known: Catalog, folder: Path) -> Iterator[RefreshOutcome]:
    """Ask sources one after another and write the listing of each that answers; yields as it goes.

    :raises NetworkError: when the network is forbidden.
    :raises MissingToolError: when the depot may not be written.
    """
    require_network("Refreshing the catalog")
    settings = read_index_settings()
    for source in sources:
        try:
            page, unchanged = _ask(source, folder, settings)
        except NetworkError as error:
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


def list_source(source: Source, files: Iterable[PublishedFile], listed: dt.datetime, *, seen: bool = True) -> Listing:
    """A source's listing from its files; ``seen`` is false where they were computed and not found."""
    collection = Collection(
        source.name, source.kind, source.page, source.licence, listed.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
    return Listing(collection, to_wheels(files, source=source.name, official=source.kind == "official", seen=seen))


def _ask(source: Source, folder: Path, settings: IndexSettings) -> tuple[Page, bool]:
    """What a source lists, and whether all of it was known."""
    if source.format is Format.INDEX:
        return _ask_index(source, settings), False
    github = source.format is Format.GITHUB
    read = read_github_releases if github else partial(read_huggingface_tree, files=source.files)
    secret = os.environ.get("GITHUB_TOKEN", "") if github else ""
    token = PageToken(_GITHUB, secret) if secret else None
    with Pages(source.listing, folder / "pages", settings, token=token) as pages:
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
