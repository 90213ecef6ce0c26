"""Renew src/flashdepot/catalog/wheels.json.z, the catalog that the package ships.

Usage: PYTHONPATH=src python scripts/build_catalog.py --live
       PYTHONPATH=src python scripts/build_catalog.py --date 2026-11-21 --seen A.csv --expected B.csv --digests C.csv

With --live, the sources of sources.toml are asked, as 'flashdepot catalog update' asks them (GITHUB_TOKEN is wise).
Otherwise the wheels are those of tables: --seen and --expected have the URL of a wheel in a column 'url' or
'expected_url', and may have 'sha256' and 'size_bytes'; what --expected has was computed from a build matrix, and nobody
looked whether it exists. --digests has 'release_tag', 'filename', 'size_bytes' and 'sha256'. Each option may be
repeated. The same tables give the same catalog.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from flashdepot.catalog.load import SHIPPED, Catalog, Listing, encode, load_catalog
from flashdepot.catalog.published_files import PublishedFile
from flashdepot.catalog.refresh import Source, list_source, read_sources, refresh
from flashdepot.model.wheel import filename_of_url


def main() -> None:
    """Write the catalog and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="ask the sources")
    parser.add_argument("--date", type=dt.date.fromisoformat, help="when the tables were made")
    for table in ("--seen", "--expected", "--digests"):
        parser.add_argument(table, type=Path, action="append", default=[], metavar="CSV")
    parser.add_argument("--output", type=Path, default=SHIPPED, help="write this file instead")
    options = parser.parse_args()
    if options.live == bool(options.date and (options.seen or options.expected)):
        parser.error("either --live, or --date and tables")
    if options.live:
        listings = from_sources()
    else:
        listed = dt.datetime.combine(options.date, dt.time(), dt.timezone.utc)
        listings = from_tables(listed, options.seen, options.expected, options.digests)
    options.output.write_bytes(encode(listings))
    for listing in listings:
        print(f"{listing.collection.name}: {len(listing.wheels)}")
    print(f"wrote {options.output}: {options.output.stat().st_size} bytes")


def from_sources() -> list[Listing]:
    """Listings of what the sources publish today; ends the program when one of them does not answer."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for outcome in refresh(read_sources(place), Catalog((), (), ()), place):
            if outcome.error:
                sys.exit(f"{outcome.source}: {outcome.error.message}")
        catalog = load_catalog(place)
        return [
            Listing(collection, tuple(wheel for wheel in catalog.wheels if wheel.source == collection.name))
            for collection in catalog.collections
        ]


def from_tables(listed: dt.datetime, seen: list[Path], expected: list[Path], digests: list[Path]) -> list[Listing]:
    """Listings of the wheels in tables, each wheel with the source whose files begin as its URL does."""
    sources = read_sources(Path())
    known = {(row["release_tag"], row["filename"]): row for row in _rows(digests)}
    found = {source.name: (list[PublishedFile](), list[PublishedFile]()) for source in sources}
    for is_expected, tables in enumerate((seen, expected)):
        for row in _rows(tables):
            url = row.get("url") or row["expected_url"]
            source = _source_of(url, sources)
            name = filename_of_url(url)
            more = known.get((url.removeprefix(source.files).partition("/")[0], name), row)
            size, sha256 = more.get("size_bytes") or 0, more.get("sha256") or ""
            found[source.name][is_expected].append(PublishedFile(name, url, int(size), sha256))
    return [
        list_source(source, there or computed, listed, seen=not computed or bool(there))
        for source in sources
        for there, computed in [found[source.name]]
    ]


def _source_of(url: str, sources: Iterable[Source]) -> Source:
    for source in sources:
        if url.startswith(source.files):
            return source
    sys.exit(f"no source of sources.toml has {url}")


def _rows(tables: Iterable[Path]) -> Iterator[dict[str, str]]:
    for table in tables:
        with table.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


if __name__ == "__main__":
    main()
