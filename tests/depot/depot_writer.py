"""A process that writes to a depot until it is killed, and says on stdout what it has finished.

``record ROOT FROM COUNT``: compiler runs FROM..FROM+COUNT-1, a line with the name after each.
``library ROOT OUT``: stores, materialises and exports libraries without end, a line with the recipe key after each.
``hold ROOT KEY``: holds a lock, says so, and sleeps.  ``work ROOT``: the same with a workspace.
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

from flashdepot.depot import Depot
from support.depots import record_unit, store_library


def unit_content(number: int) -> bytes:
    return f"unit {number}".encode() * 3000


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main(mode: str, root: str, *rest: str) -> None:
    depot = Depot(Path(root))
    with tempfile.TemporaryDirectory(dir=Path(root).parent) as work:
        if mode == "record":
            first, count = map(int, rest)
            for number in range(first, first + count):
                record_unit(depot, Path(work), f"unit-{number}", unit_content(number))
                say(f"unit-{number}")
        elif mode == "library":
            for number in itertools.count():
                manifest = store_library(depot, Path(work), name=f"{work}-{number}")
                depot.libraries.materialise(manifest)
                depot.export(manifest, Path(rest[0]))
                say(manifest.recipe_key)
        elif mode == "hold":
            with depot.lock(rest[0]):
                say("held")
                time.sleep(60)
        elif mode == "work":
            with depot.workspace() as folder:
                (folder / "part.o").write_bytes(b"x" * 5000)
                say(folder.name)
                time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
