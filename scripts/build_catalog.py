"""Renew src/flashdepot/catalog/wheels.json.z, the catalog that the package ships.

Usage: PYTHONPATH=src python scripts/build_catalog.py

The sources of sources.toml are asked, as 'flashdepot catalog update' asks them (GITHUB_TOKEN is wise).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from flashdepot.catalog.load import SHIPPED, Catalog, Listing, encode, load_catalog
from flashdepot.catalog.refresh import read_sources, refresh


def main() -> None:
    """Write the catalog and say what is in it; ends the program when a source does not answer."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for outcome in refresh(read_sources(place), Catalog((), (), ()), place):
            if outcome.error:
                sys.exit(f"{outcome.source}: {outcome.error.message}")
        catalog = load_catalog(place)
    listings = [
        Listing(collection, tuple(wheel for wheel in catalog.wheels if wheel.source == collection.name))
        for collection in catalog.collections
    ]
    SHIPPED.write_bytes(encode(listings))
    for listing in listings:
        print(f"{listing.collection.name}: {len(listing.wheels)}")
    print(f"wrote {SHIPPED}: {SHIPPED.stat().st_size} bytes")


if __name__ == "__main__":
    main()
