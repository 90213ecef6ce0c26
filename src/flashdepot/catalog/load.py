"""Reading and writing the catalog: listings of wheels as compact bytes, those that the package ships and refreshed ones."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from flashdepot.errors import IntegrityError
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.codec import Natural, canonical_json
from flashdepot.model.wheel import BuiltFor, WheelName, canonical_name, filename_of_url

SCHEMA = 1
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


class _Packed(msgspec.Struct, frozen=True):
    """A listing as it is stored: each row points to one of the names, of the tags and of the places."""

    collection: Collection
    names: list[tuple[str, str, str, tuple[str, ...], str, bool]]
    tags: list[tuple[str, str, str, str]]
    places: list[tuple[str, str, str]]
    rows: tuple[list[Natural], list[Natural], list[Natural]]
    sizes: list[Natural]
    sha256: list[str]


class _Document(_Schema, frozen=True):
    listings: list[_Packed] = []


def encode(listings: Iterable[Listing]) -> bytes:
    """Compact bytes; the same listings give the same JSON inside."""
    document = {"schema": SCHEMA, "listings": [_pack(listing) for listing in listings]}
    return zlib.compress(canonical_json(document), 9)


def decode(data: bytes, *, name: str, wanted: Callable[[Collection], bool] = lambda _collection: True) -> list[Listing]:
    """Read what :func:`encode` wrote, of the collections that are wanted; ``name`` is for the message."""
    try:
        whole = zlib.decompressobj()
        text = whole.decompress(data, _LONGEST)
        if not whole.eof:
            raise ValueError(f"it is cut off, or holds more than {_LONGEST >> 20} MiB")  # noqa: TRY301
        packed = (listing for listing in _read_document(text, name).listings if wanted(listing.collection))
        return [Listing(listing.collection, tuple(_unpack(listing))) for listing in packed]
    except (zlib.error, ValueError, RecursionError) as error:
        raise IntegrityError(f"{name} is damaged: {error}.") from error


def _read_document(text: bytes, name: str) -> _Document:
    try:
        document = msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError:
        document = _Document(**asdict(msgspec.json.decode(text, type=_Schema)))
        if document.schema == SCHEMA:
            raise
    if document.schema != SCHEMA:
        raise IntegrityError(f"{name} has the format {document.schema}, expected {SCHEMA}.")
    return document


def split_url(url: str) -> tuple[str, WheelName, str, str] | None:
    """Take a wheel's URL apart: what stands before its name, the name, how its plus sign is spelled, what follows.

    ``None`` when it does not spell the name so that it can be put together; :raises UsageError: for another file's URL.
    """
    name = WheelName.parse(filename_of_url(url))
    for plus in ("+", "%2B", "%2b"):
        spelled = str(name).replace("+", plus)
        before, found, after = url.rpartition(spelled)
        if found:
            return before, name, plus, after
    return None


def _pack(listing: Listing) -> dict[str, Any]:
    names, tags, places = dict[Any, int](), dict[Any, int](), dict[Any, int]()  # numbers in the order of first use
    rows: list[tuple[int, int, int]] = []
    for wheel in listing.wheels:
        parts = split_url(wheel.url)
        if parts is None:
            raise ValueError(f"{wheel.url} cannot be packed")
        before, name, plus, after = parts
        of_name = (name.distribution, name.version, name.local, wheel.sass, wheel.ptx, wheel.seen)
        of_tag = (name.build, name.python, name.abi, name.platform)
        keys = ((names, of_name), (tags, of_tag), (places, (before, plus, after)))
        rows.append(tuple(numbers.setdefault(key, len(numbers)) for numbers, key in keys))  # type: ignore[arg-type]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return {
        "collection": asdict(listing.collection),
        "names": list(names),
        "tags": list(tags),
        "places": list(places),
        "rows": columns,
        "sizes": [wheel.size for wheel in listing.wheels],
        "sha256": [wheel.sha256 for wheel in listing.wheels],
    }


def _unpack(packed: _Packed) -> Iterator[PublishedWheel]:
    """:raises ValueError: when the numbers of the listing point to nothing."""
    source, places = packed.collection.name, packed.places
    tags = [
        (f"{f'-{build}' if build else ''}-{python}-{abi}-{platform}.whl", (python, abi, platform, source))
        for build, python, abi, platform in packed.tags
    ]
    names = []
    for distribution, version, local, sass, ptx, seen in packed.names:
        built = BuiltFor.parse(local)
        named = (canonical_name(distribution), version, built.cuda, built.torch, built.cxx11_abi)
        names.append((named, (seen, sass, ptx), f"{distribution}-{version}", local))
    make = PublishedWheel._make
    try:
        for name, tag, place, size, sha256 in zip(*packed.rows, packed.sizes, packed.sha256, strict=True):
            named, known, first, local = names[name]
            last, tagged = tags[tag]
            before, plus, after = places[place]
            url = f"{before}{first}{plus}{local}{last}{after}" if local else f"{before}{first}{last}{after}"
            yield make((*named, *tagged, url, size, sha256, *known))
    except IndexError as error:
        raise ValueError("its columns do not agree") from error


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
    """Read the shipped catalog and the refreshed listings in ``folder``; of each collection the newer counts.

    A refreshed listing that is damaged is moved aside, and a note says so; :raises IntegrityError: for the shipped file.
    """
    notes: list[str] = []
    paths = sorted(folder.glob("listings/*.json.z")) if folder else []
    refreshed = {listing.collection.name: listing for path in paths for listing in _read_refreshed(path, notes)}

    def counts(shipped: Collection) -> bool:
        other = refreshed.get(shipped.name)
        return other is None or shipped.listed > other.collection.listed

    shipped = decode(SHIPPED.read_bytes(), name=str(SHIPPED), wanted=counts)
    newest = refreshed | {listing.collection.name: listing for listing in shipped}
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
