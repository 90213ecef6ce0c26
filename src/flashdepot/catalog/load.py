"""Reading and writing the catalog: listings of wheels as compact bytes, those that the package ships and refreshed ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import date, datetime
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.model.candidate import PublishedWheel

SCHEMA: Final = 2
_LONGEST = 64 << 20


class Collection(msgspec.Struct, frozen=True):
    """A publisher of wheels: ``kind`` is ``official`` or ``community``, ``page`` is for people.

    ``licence`` is that of the collection's own files, empty where it states none. ``listed`` says when the wheels were
    listed, as ISO 8601 in UTC.
    """

    name: str
    kind: str
    page: str
    licence: str
    listed: str


class Listing(msgspec.Struct, frozen=True):
    """What one collection publishes."""

    collection: Collection
    wheels: tuple[PublishedWheel, ...]


class _Schema(msgspec.Struct, frozen=True):
    schema: int


class _Document(msgspec.Struct, frozen=True):
    schema: Literal[2]
    listings: list[Listing]


def encode(listings: Iterable[Listing]) -> bytes:
    """Compact bytes; the same listings give the same JSON inside."""
    return zlib.compress(msgspec.json.encode(_Document(SCHEMA, list(listings))), 9)


def decode(data: bytes, *, name: str) -> list[Listing]:
    """Read what :func:`encode` wrote; ``name`` is for the message."""
    try:
        whole = zlib.decompressobj()
        text = whole.decompress(data, _LONGEST)
        if not whole.eof:
            raise ValueError(f"it is cut off, or holds more than {_LONGEST >> 20} MiB")  # noqa: TRY301
        try:
            return msgspec.json.decode(text, type=_Document).listings
        except msgspec.ValidationError:
            if (schema := msgspec.json.decode(text, type=_Schema).schema) != SCHEMA:
                raise IntegrityError(f"{name} has the format {schema}, expected {SCHEMA}.") from None
            raise
    except (zlib.error, ValueError, RecursionError) as error:
        raise IntegrityError(f"{name} is damaged: {error}.") from error


CATALOG_FOLDER = "catalog"
"""The folder in a depot that holds what was refreshed."""

SHIPPED = Path(__file__).parent / "wheels.json.z"


class Catalog(msgspec.Struct, frozen=True):
    """Every wheel that is known, the collections that they are from, and what went wrong in reading, a line each."""

    wheels: tuple[PublishedWheel, ...]
    collections: tuple[Collection, ...]
    notes: tuple[str, ...]

    def age(self, now: datetime) -> str:
        """When the oldest of its collections was listed, as text: ``listed 3 days ago``."""
        oldest = min((collection.listed[:10] for collection in self.collections), default="")
        days = (now.date() - date.fromisoformat(oldest)).days if oldest else 0
        return f"listed {days} day{'s' * (days != 1)} ago" if days > 0 else "listed today"


def load_catalog(folder: Path | None = None) -> Catalog:
    """The shipped catalog and the refreshed listings in ``folder``; of each collection the newer counts.

    A refreshed listing that is damaged is moved aside, and a note says so.
    """
    notes: list[str] = []
    paths = sorted(folder.glob("listings/*.json.z")) if folder else []
    newest = {listing.collection.name: listing for path in paths for listing in _read_refreshed(path, notes)}
    for shipped in decode(SHIPPED.read_bytes(), name=str(SHIPPED)):
        other = newest.get(shipped.collection.name)
        if other is None or shipped.collection.listed > other.collection.listed:
            newest[shipped.collection.name] = shipped
    return Catalog(
        wheels=tuple(chain.from_iterable(listing.wheels for listing in newest.values())),
        collections=tuple(listing.collection for listing in newest.values()),
        notes=tuple(notes),
    )


def refreshed_path(folder: Path, source: str) -> Path:
    """Where the refreshed listing of a source is."""
    return folder / "listings" / f"{source}.json.z"


def _read_refreshed(path: Path, notes: list[str]) -> list[Listing]:
    try:
        return decode(path.read_bytes(), name=str(path))
    except OSError as error:
        notes.append(f"{path} cannot be read: {error.strerror}. The shipped listing is used.")
    except IntegrityError as error:
        aside = path.with_suffix(".damaged")
        try:
            path.replace(aside)
            fate = f"It was moved to {aside.name}"
        except OSError as problem:
            fate = f"It could not be moved aside ({problem.strerror})"
        notes.append(
            f"{error.message} {fate}, and the shipped listing is used; 'flashdepot catalog update' makes it again."
        )
    return []
