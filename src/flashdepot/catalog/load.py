"""Reading the catalog: what the package ships, and what was refreshed since."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

import msgspec

from flashdepot.catalog.packing import Collection, Listing, decode
from flashdepot.errors import IntegrityError
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.wheel_lots import LotsOfWheels

CATALOG_FOLDER = "catalog"
"""The folder in a depot that holds what was refreshed."""

SHIPPED = Path(__file__).parent / "wheels.json.z"


class Catalog(msgspec.Struct, frozen=True):
    """Every wheel that is known, the collections that they are from, and what went wrong in reading, a line each."""

    wheels: Sequence[PublishedWheel]
    collections: tuple[Collection, ...]
    notes: tuple[str, ...]

    def age(self, now: datetime) -> str:
        """When the oldest of its collections was listed, in words: ``listed 3 days ago``."""
        oldest = min((collection.listed[:10] for collection in self.collections), default="")
        days = (now.date() - date.fromisoformat(oldest)).days if oldest else 0
        return f"listed {days} day{'s' * (days != 1)} ago" if days > 0 else "listed today"


def load_catalog(folder: Path | None = None) -> Catalog:
    """Read the shipped catalog and the refreshed listings in ``folder``; of each collection the newer counts.

    A refreshed listing that is damaged is moved aside, and a note says so.

    :raises IntegrityError: when the shipped file is damaged.
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
        wheels=LotsOfWheels(listing.wheels for listing in newest.values()),
        collections=tuple(listing.collection for listing in newest.values()),
        notes=tuple(notes),
    )


def refreshed_path(folder: Path, source: str) -> Path:
    """Where the refreshed listing of a source lies."""
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
