"""What builds cost: a full one, and the same again when everything is known.

Usage:
    python benchmarks/build.py full --depot DIR --out FILE.json [--arch 90] [--profile full] [--memory 110GB]
    python benchmarks/build.py warm --depot DIR --out FILE.json [--cores 0,1]

``full`` and ``warm`` take a depot that is or was filled by the other. ``warm`` forgets the finished library and keeps
the units, so that every unit is looked up, verified, linked and stored again.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashdepot.build.library import BuildPlan, Options, build_library, prepare
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress, Snapshot
from flashdepot.host import probe
from flashdepot.kernels import obtain_sources
from flashdepot.model.limits import Limits, parse_size
from flashdepot.model.request import AnyCuda
from flashdepot.resolve.library import resolve_library
from flashdepot.resolve.project import library_request
from flashdepot.toolchain.choose import choose_toolchain

WARM_RUNS = 5


def main() -> None:
    """Run one benchmark and write its result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["full", "warm"])
    parser.add_argument("--depot", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="90")
    parser.add_argument("--profile", default="full")
    parser.add_argument("--memory", type=parse_size)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--cores", default="0,1")
    arguments = parser.parse_args()
    if arguments.what == "warm":
        os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    run = {"full": full, "warm": warm}[arguments.what]
    result = {
        "benchmark": arguments.what,
        "date": datetime.datetime.now(tz=datetime.timezone.utc).isoformat(timespec="minutes"),
        "machine": machine(),
        "command": "python " + " ".join(sys.argv),
        **run(arguments),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def machine() -> dict[str, Any]:
    """What the figures were seen on."""
    record = probe()
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": record.cores,
        "os": record.os_name,
        "gpus": [g.name for g in record.gpus],
        "driver": str(record.driver) if record.driver else None,
        "compilers": [f"{c.kind} {c.version}" for c in record.compilers],
    }


@contextlib.contextmanager
def plan_for(arguments: argparse.Namespace) -> Iterator[tuple[BuildPlan, Depot]]:
    """Everything up to the first compiler run, as 'flashdepot build' does it."""
    depot, host, watch = Depot(arguments.depot), probe(), Watch()
    need = resolve_library(library_request(profile=arguments.profile, arch=arguments.arch), host, depot)
    wanted, folder = need.request, depot.layout.toolchains
    with depot.workspace() as work:
        toolchain = choose_toolchain(
            AnyCuda.AUTO, host, wanted.gpus, driver=None, folder=folder, work=work, on_file=watch.download
        )
        trees = obtain_sources(need.sources, depot.layout.upstreams, watch.download)
        yield (
            prepare(trees, wanted.selection, wanted.gpus, host.platform, toolchain, depot, Options(), watch.download),
            depot,
        )


@dataclass(frozen=True)
class Sample:
    """One moment of a build; ``busy`` are the machine's busy CPU-seconds since the build began."""

    seconds: float
    waiting: int
    memory: int
    busy: float


class Watch(BuildProgress):
    """Samples a build, and prints a line for each unit so that a watcher sees it going."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self._busy = cpu_times()
        self.samples: list[Sample] = []

    def update(self, state: Snapshot) -> None:
        """Add a sample."""
        waiting = state.steps.total - state.steps.done - len(state.running)
        seconds = time.monotonic() - self.begun
        self.samples.append(Sample(seconds, waiting, state.memory, cpu_times() - self._busy))

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """Print a line."""
        passed = time.monotonic() - self.begun
        print(f"{passed:7.1f} s  [{state.steps.done}/{state.steps.total}] {name} {seconds:.0f} s", flush=True)


def cpu_times() -> float:
    """Busy CPU-seconds of the whole machine since it started."""
    fields = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def full(arguments: argparse.Namespace) -> dict[str, Any]:
    """Build a whole profile; the share of core time is measured until the first moment with nothing waiting."""
    jobs = arguments.jobs or len(os.sched_getaffinity(0))
    with plan_for(arguments) as (plan, depot):
        watch = Watch()
        manifest, outcome = build_library(plan, depot, Limits(jobs, arguments.memory), watch)
    wall = time.monotonic() - watch.begun
    tail = next((sample for sample in watch.samples if sample.waiting == 0), None)
    records = outcome.actions.values()
    return {
        "units": len(plan.recipe.selection.units),
        "compiled": len(outcome.compiled),
        "jobs": jobs,
        "wall_seconds": round(wall, 1),
        "cpu_seconds_of_compilers": round(sum(r.cpu_seconds for r in records), 1),
        "seconds_until_tail": round(tail.seconds, 1) if tail else None,
        "share_of_core_time_until_tail": round(tail.busy / (tail.seconds * jobs), 3) if tail else None,
        "highest_memory_of_compilers_gb": round(max((s.memory for s in watch.samples), default=0) / 1e9, 2),
        "largest_single_process_gb": round(max(r.peak_rss for r in records) / 1e9, 2),
        "sizes": {f.path: f.size for f in manifest.files if f.path.startswith("lib/s")},
        "objects_mb": round(sum(r.object.size for r in records) / 1e6, 1),
        "recipe_key": manifest.recipe_key,
        "per_unit": {r.name: [r.cpu_seconds, round(r.peak_rss / 1e9, 2), r.object.size] for r in records},
    }


def warm(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything is known: look all units up again, link and store."""
    with plan_for(arguments) as (plan, depot):
        build_library(plan, depot, Limits(2), BuildProgress())
    command = [sys.executable, "-m", "flashdepot", "build", "--profile", arguments.profile]
    command += ["--arch", arguments.arch, "--depot", str(arguments.depot), "--json"]
    times: list[float] = []
    for _ in range(WARM_RUNS + 1):
        depot.artifacts.remove(plan.recipe.key)
        shutil.rmtree(depot.layout.library(plan.recipe.key), ignore_errors=True)
        begun = time.monotonic()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        times.append(round(time.monotonic() - begun, 2))
        units = json.loads(done.stdout)["units"]
        assert units["compiled"] == 0, units
    runs = {"median": round(statistics.median(times[1:]), 2), "runs": times[1:]}
    return {"units": len(plan.recipe.selection.units), "cores": arguments.cores, "flashdepot": runs}


if __name__ == "__main__":
    main()
