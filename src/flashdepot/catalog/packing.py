"""Listings of wheels as compact bytes, and back.

The bytes are JSON compressed by zlib. A listing holds the distinct values of what file names have in common, and a row
of small numbers for each wheel that says which of them are its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.canonical import canonical_json
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.wheel_name import BuiltFor, WheelName, canonical_name, filename_of_url

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

    def __post_init__(self) -> None:
        if not all(isinstance(value, str) for value in asdict(self).values()):
            raise ValueError("a collection has a field that is not a text")


class Listing(msgspec.Struct, frozen=True):
    """What one collection publishes."""

    collection: Collection
    wheels: tuple[PublishedWheel, ...]


def encode(listings: Iterable[Listing]) -> bytes:
    """Compact bytes; the same listings give the same JSON inside."""
    document = {"schema": SCHEMA, "listings": [_pack(listing) for listing in listings]}
    return zlib.compress(canonical_json(document), 9)


def decode(data: bytes, *, name: str, wanted: Callable[[Collection], bool] = lambda _collection: True) -> list[Listing]:
    """Read what :func:`encode` wrote, of the collections that are wanted; ``name`` is for the message.

    :raises IntegrityError: when the bytes are damaged, or of another version of this format.
    """
    try:
        document = json.loads(_decompress(data))
        if document["schema"] != SCHEMA:
            raise IntegrityError(f"{name} has the format {document['schema']}, expected {SCHEMA}.")
        packed = [(Collection(**listing["collection"]), listing) for listing in document["listings"]]
        return [_unpack(collection, listing) for collection, listing in packed if wanted(collection)]
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise IntegrityError(f"{name} is damaged: {error}.") from error


def _decompress(data: bytes) -> bytes:
    """The document, as long as it is no larger than one can be."""
    whole = zlib.decompressobj()
    text = whole.decompress(data, _LONGEST)
    if not whole.eof:
        raise ValueError(f"it is cut off, or holds more than {_LONGEST >> 20} MiB")
    return text


def split_url(url: str) -> tuple[str, WheelName, str, str] | None:
    """Take a wheel's URL apart: what stands before its name, the name, how its plus sign is spelled, what follows.

    :returns: ``None`` when the URL does not spell the name so that it can be put together again.
    :raises UsageError: when it is not the URL of a wheel.
    """
    name = WheelName.parse(filename_of_url(url))
    for plus in ("+", "%2B", "%2b"):
        spelled = str(name).replace("+", plus)
        before, found, after = url.rpartition(spelled)
        if found:
            return before, name, plus, after
    return None


def _pack(listing: Listing) -> dict[str, Any]:
    names, tags, places = _Numbers(), _Numbers(), _Numbers()
    rows: list[tuple[int, int, int]] = []
    for wheel in listing.wheels:
        parts = split_url(wheel.url)
        if parts is None:
            raise ValueError(f"{wheel.url} cannot be packed")
        before, name, plus, after = parts
        rows.append(
            (
                names.of((name.distribution, name.version, name.local, wheel.sass, wheel.ptx, wheel.seen)),
                tags.of((name.build, name.python, name.abi, name.platform)),
                places.of((before, plus, after)),
            )
        )
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return {
        "collection": asdict(listing.collection),
        "names": names.values,
        "tags": tags.values,
        "places": places.values,
        "rows": columns,
        "sizes": [wheel.size for wheel in listing.wheels],
        "sha256": [wheel.sha256 for wheel in listing.wheels],
    }


class _Numbers:
    """Numbers for distinct values, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Any]:
        return list(self._numbers)


def _unpack(collection: Collection, packed: dict[str, Any]) -> Listing:
    source = collection.name
    if not all(type(size) is int and size >= 0 for size in packed["sizes"]):
        raise ValueError("a size is not a number of bytes")
    if not all(
        type(text) is str for text in (*packed["sha256"], *(text for place in packed["places"] for text in place))
    ):
        raise ValueError("a digest or a place is not a text")
    names = []
    for distribution, version, local, sass, ptx, seen in packed["names"]:
        built = BuiltFor.parse(local)
        first = f"{distribution}-{version}+{local}" if local else f"{distribution}-{version}"
        facts = (canonical_name(distribution), version, built.cuda, built.torch, built.cxx11_abi)
        names.append((first, facts, (seen, tuple(sass), ptx)))
    tags = []
    for build, python, abi, platform in packed["tags"]:
        number = f"-{build}" if build else ""
        tags.append((f"{number}-{python}-{abi}-{platform}.whl", (python, abi, platform, source)))
    wheels: list[PublishedWheel] = []
    # A loop over ten thousand rows: names are looked up once, and the tuples are made without their constructor.
    add, new = wheels.append, tuple.__new__
    name_codes, tag_codes, place_codes = packed["rows"]
    places = packed["places"]
    for n, t, p, size, sha256 in zip(
        name_codes, tag_codes, place_codes, packed["sizes"], packed["sha256"], strict=True
    ):
        first, facts, code = names[n]
        last, tag = tags[t]
        before, plus, after = places[p]
        spelled = first if plus == "+" else first.replace("+", plus)
        add(new(PublishedWheel, (*facts, *tag, f"{before}{spelled}{last}{after}", size, sha256, *code)))
    return Listing(collection, tuple(wheels))
