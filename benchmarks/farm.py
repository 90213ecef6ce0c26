"""576 units on a farm of four workers, by a compiler that sleeps and holds memory: ``python benchmarks/farm.py FOLDER``.

Says what it takes, and what a ``kill -9`` of a worker, of the client and of the scheduler costs when a third is done.
``python benchmarks/farm.py FOLDER overhead`` says what a task costs without its compiler: units that take no time, on eight
slots of this machine and on the same number of a farm.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import psutil

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
        f"units; {more * 1000:.0f} ms a unit more than its sleep\n"
    )
    sys.stdout.flush()


def overhead(folder: Path, few: int = 64, many: int = 864) -> None:
    """Take the time of few and of many units without work, here and on a farm: the difference is what one costs."""
    farm = Farm(folder / "farm")
    took: dict[tuple[str, int], float] = {}
    spent: dict[str, dict[int, float]] = {"scheduler": {}, "client": {}}
    try:
        farm.start(workers=4)
        wait_for(farm.has_all_workers, "the workers")
        for where, options in (("here", {"jobs": SLOTS}), ("farm", {})):
            for count in (few, many):
                sources = {f"u{i}.src": f"# {i}\n" for i in range(count)}
                sizes = {f"u{i}": 1_900_000_000 if where == "farm" else 1_000_000 for i in range(count)}
                build = FarmBuild(folder / f"{where}{count}", farm, sources, options={"sizes": sizes, **options})
                before, begun = cpu_seconds(farm.scheduler.pid), time.monotonic()
                children = resource.getrusage(resource.RUSAGE_CHILDREN)
                build.start()
                build.finish(LONGEST)
                took[where, count] = time.monotonic() - begun
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if where == "farm":
                    spent["scheduler"][count] = cpu_seconds(farm.scheduler.pid) - before
                    spent["client"][count] = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
                sys.stdout.write(f"{where}: {count} units: {took[where, count]:.2f} s\n")
                sys.stdout.flush()
    finally:
        farm.stop()
    each = {where: (took[where, many] - took[where, few]) / (many - few) for where in ("here", "farm")}
    cpu = {who: (row[many] - row[few]) / (many - few) for who, row in spent.items()}
    sys.stdout.write(
        f"a unit on {SLOTS} slots: {each['here'] * 1000:.2f} ms here, {each['farm'] * 1000:.2f} ms on the farm; "
        f"CPU of the client {cpu['client'] * 1000:.2f} ms, of the scheduler {cpu['scheduler'] * 1000:.2f} ms\n"
    )


def cpu_seconds(process: int) -> float:
    """What a process has spent."""
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    if sys.argv[2:] == ["overhead"]:
        overhead(Path(sys.argv[1]))
        sys.exit()
    for number, what in enumerate(sys.argv[2:] or ["", "worker", "client", "scheduler"]):
        run(Path(sys.argv[1]) / f"{number}", what)
