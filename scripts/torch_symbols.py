"""Renew ``facts/torch_symbols.csv``: which torch minors export the torch symbols that the given wheels take.

``scripts/torch_symbols.py --torch FOLDER --torch FOLDER ... WHEEL...`` with one unpacked ``torch`` folder (``version.py``
and ``lib/`` are enough) for each minor. Then put the versions and the date into ``torch_symbols.toml``. The table is
written again: give every minor that it should distinguish. ``--add`` keeps the table, and says of its symbols what minors
that are newer than the table export: it needs no wheels. ``--check`` writes nothing, and says where the torches and
wheels that there are, however few, disagree with the table.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from flashdepot.diagnose.check import place
from flashdepot.diagnose.check.subject import read_subject
from flashdepot.facts import SYMBOLS, about_torch_symbols
from flashdepot.model.target import Version

Torch = tuple[Version, frozenset[str]]
Row = tuple[str, str, str]
"""A symbol, the first and the last minor that export it; empty at an open end."""


def main() -> None:
    """Read the torches and the wheels, and write the table or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, action="append", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("wheels", type=Path, nargs="*")
    options = parser.parse_args()
    if not options.wheels and not options.add:
        parser.error("name wheels whose symbols are to be distinguished, or --add")
    torches: list[Torch] = []
    for folder in options.torch:
        version = re.search(r"__version__ *= *'(\d+\.\d+)", (folder / "version.py").read_text())
        libraries = [path.name for path in (folder / "lib").iterdir()]
        exported = place.exported_symbols(folder / "lib", libraries)
        torches.append((Version(version[1] if version else "0"), exported))
    torches.sort(key=lambda pair: pair[0])
    if options.add:
        write(longer(list(read_table()), about_torch_symbols()["newest"], torches))
        print(f'torch_symbols.toml: newest = "{torches[-1][0]}"')
        return
    taken = {s for wheel in options.wheels for binary in read_subject(wheel).binaries for s in binary.torch_symbols}
    symbols = sorted(s for s in taken if place.abi_of({s}) is None)
    if options.check:
        sys.exit(check(symbols, torches))
    write(rows(symbols, torches))
    print(f'torch_symbols.toml: oldest = "{torches[0][0]}", newest = "{torches[-1][0]}"')


def read_table() -> Iterator[Row]:
    """The rows of the table as it is."""
    with SYMBOLS.open(newline="") as file:
        yield from ((row["symbol"], row["since"], row["until"]) for row in csv.DictReader(file))


def write(table: Iterable[Row]) -> None:
    """Write the table, with its heading."""
    with SYMBOLS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("symbol", "since", "until"), *table])


def longer(table: Iterable[Row], newest: str, torches: list[Torch]) -> Iterator[Row]:
    """Each row, with what newer minors export; says which symbols are left out, as they come back after a gap.

    :param newest: the newest minor that the table distinguishes so far.
    """
    for symbol, since, until in table:
        having = [index for index, (_, exported) in enumerate(torches) if symbol in exported]
        if having != list(range(len(having))) or (until and having):
            print(f"left out, exported again by {[str(torches[i][0]) for i in having]}: {symbol}")
        elif until or len(having) == len(torches):
            yield symbol, since, until
        else:
            yield symbol, since, str(torches[having[-1]][0]) if having else newest


def rows(symbols: list[str], torches: list[Torch]) -> Iterator[Row]:
    """Each symbol with the first and the last minor that exports it; says which have none, or a gap."""
    for symbol in symbols:
        having = [index for index, (_, exported) in enumerate(torches) if symbol in exported]
        if having and having == list(range(having[0], having[-1] + 1)):
            since = "" if having[0] == 0 else str(torches[having[0]][0])
            until = "" if having[-1] == len(torches) - 1 else str(torches[having[-1]][0])
            yield symbol, since, until
        else:
            print(f"left out, exported by {[str(torches[i][0]) for i in having]}: {symbol}")


def check(symbols: list[str], torches: list[Torch]) -> int:
    """Print every disagreement with the table; 1 when there is one."""
    table = {symbol: (since, until) for symbol, since, until in read_table()}
    wrong = 0
    known = [symbol for symbol in symbols if symbol in table]
    for symbol in known:
        since, until = table[symbol]
        for version, exported in torches:
            says = (not since or Version(since) <= version) and (not until or version <= Version(until))
            if says != (symbol in exported):
                wrong += 1
                print(f"torch {version} {'has' if symbol in exported else 'lacks'} {symbol}")
    names = ", ".join(str(version) for version, _ in torches)
    print(f"{len(known)} of {len(symbols)} symbols are in the table; torch {names}: {wrong} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
