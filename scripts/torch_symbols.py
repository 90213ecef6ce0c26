"""Renew ``torch_symbols.csv``: which torch minors export the torch symbols that the given wheels take.

``scripts/torch_symbols.py --torch FOLDER --torch FOLDER ... WHEEL...`` with one unpacked ``torch`` folder (``version.py``
and ``lib/`` are enough) for each minor. Then put the versions and the date into ``torch_symbols.toml``.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from flashdepot.doctor.check import torch_side
from flashdepot.doctor.check.subject import read_subject
from flashdepot.model.target import Version

TABLE = Path(torch_side.__file__).with_name("torch_symbols.csv")


def main() -> None:
    """Read the torches and the wheels, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", type=Path, action="append", required=True)
    parser.add_argument("wheels", type=Path, nargs="+")
    options = parser.parse_args()
    torches = []
    for folder in options.torch:
        torch = torch_side.read_installed_torch(folder)
        torches.append((Version(".".join(torch.version.partition("+")[0].split(".")[:2])), torch.exported))
    torches.sort(key=lambda pair: pair[0])
    taken = {s for wheel in options.wheels for binary in read_subject(wheel).binaries for s in binary.torch_symbols}
    rows = []
    for symbol in sorted(s for s in taken if torch_side.abi_of({s}) is None):
        having = [index for index, (_, exported) in enumerate(torches) if symbol in exported]
        if having and having == list(range(having[0], having[-1] + 1)):
            since = "" if having[0] == 0 else str(torches[having[0]][0])
            until = "" if having[-1] == len(torches) - 1 else str(torches[having[-1]][0])
            rows.append((symbol, since, until))
        else:
            print(f"left out, exported by {[str(torches[i][0]) for i in having]}: {symbol}")
    with TABLE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("symbol", "since", "until"), *rows])


if __name__ == "__main__":
    main()
