"""576 units on a farm of four workers, by a compiler that sleeps and holds memory: ``python benchmarks/farm.py FOLDER``.

Says what it takes, and what a ``kill -9`` of a worker, of the client and of the scheduler costs when a third is done.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.farm import Farm, FarmBuild, wait_for

UNITS = 576
SECONDS = 0.5
SLOTS = 8
LONGEST = 1800.0
SOURCES = {f"u{i}.src": f"hold 50000000\nsleep {SECONDS}\n# {i}\n" for i in range(UNITS)}
SIZES = {f"u{i}": 1_900_000_000 for i in range(UNITS)}


def compiles(farm: Farm) -> int:
    """How many compilers have been started."""
    return sum(line.startswith("start") for line in farm.journal)


def run(folder: Path, killed: str) -> None:
    """Build all, and kill something on the way."""
    farm = Farm(folder / "farm")
    build = FarmBuild(folder, farm, SOURCES, options={"sizes": SIZES})
    try:
        farm.start(workers=4)
        wait_for(farm.has_all_workers, "the workers")
        begun = time.monotonic()
        build.start()
        if killed:
            wait_for(lambda: len(farm.journal) >= 2 * UNITS // 3, "a third", LONGEST)
            process = {"worker": farm.workers[0], "client": build.process, "scheduler": farm.scheduler}[killed]
            process.kill()
            sys.stdout.write(f"  killed: {killed}, {len(build.kept())} units were recorded\n")
        if killed == "client":
            process.wait()
        if killed == "scheduler":
            sys.stdout.write(f"  {build.finish(LONGEST)['error']}\n")
        if killed in {"client", "scheduler"}:
            kept = len(build.kept())
            if killed == "scheduler":
                farm.stop()
                farm.start(workers=4)
            build.start()
            sys.stdout.write(f"  again, with {kept} units kept\n")
        build.finish(LONGEST)
        took = time.monotonic() - begun
    finally:
        farm.stop()
    ideal = UNITS * SECONDS / SLOTS
    more = (took - ideal) * SLOTS / UNITS
    sys.stdout.write(
        f"killed: {killed or 'nothing'}: {took:.1f} s, {ideal:.1f} s of it asleep; {compiles(farm)} compiles of {UNITS} "
        f"units; {more * 1000:.0f} ms a unit beside its sleep\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    for number, what in enumerate(sys.argv[2:] or ["", "worker", "client", "scheduler"]):
        run(Path(sys.argv[1]) / f"{number}", what)
