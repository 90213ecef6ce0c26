"""What builds cost: a full one, the same again when everything is known, and four architectures two ways.

Usage:
    python benchmarks/build.py full --depot DIR --out FILE.json [--arch 90] [--profile full] [--memory 110GB]
    python benchmarks/build.py warm --depot DIR --out FILE.json [--cores 0,1] [--ccache PROGRAM]
    python benchmarks/build.py front-end --depot DIR --out FILE.json [--units NAME,...] [--arch 80,90,100,120]

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
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flashdepot.build.library import BuildPlan, Options, build_library, prepare
from flashdepot.depot import Depot
from flashdepot.events import Silent, Snapshot
from flashdepot.host import probe
from flashdepot.kernels import obtain_sources
from flashdepot.kernels.fa2 import parse_unit
from flashdepot.model.limits import Limits, parse_size
from flashdepot.model.request import AnyCuda, LibraryRequest
from flashdepot.model.selection import Selection
from flashdepot.process.child import Child, Cost
from flashdepot.resolve.library import Need, understand
from flashdepot.resolve.project import library_request
from flashdepot.toolchain.choose import choose_toolchain

WARM_RUNS = 5
TWO = 2


def main() -> None:
    """Run one benchmark and write its result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["full", "warm", "front-end"])
    parser.add_argument("--depot", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="90")
    parser.add_argument("--profile", default="full")
    parser.add_argument("--memory", type=parse_size)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--ccache")
    parser.add_argument("--units", default="")
    arguments = parser.parse_args()
    if arguments.what == "warm":
        os.sched_setaffinity(0, {int(core) for core in arguments.cores.split(",")})
    run = {"full": full, "warm": warm, "front-end": front_end}[arguments.what]
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


def plan_for(depot: Depot, request: LibraryRequest, options: Options) -> tuple[BuildPlan, Need]:
    """Everything up to the first compiler run, as 'flashdepot build' does it."""
    host = probe()
    need = understand(request, host, depot)
    toolchain = choose_toolchain(
        AnyCuda.AUTO, host, need.request.gpus, driver=None, folder=depot.layout.toolchains, on_file=print
    )
    trees = obtain_sources(need.sources, depot.layout.upstreams)
    wanted = need.request
    plan = prepare(trees, wanted.selection, wanted.gpus, host.platform, toolchain, depot, options)
    return plan, need


@dataclass(frozen=True)
class Sample:
    """One moment of a build; ``busy`` are the machine's busy CPU-seconds since the build began."""

    seconds: float
    waiting: int
    memory: int
    busy: float


class Watch(Silent):
    """Samples a build, and prints a line for each unit so that a watcher sees it going."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self._busy = cpu_times()
        self.samples: list[Sample] = []

    def update(self, state: Snapshot) -> None:
        """Add a sample."""
        waiting = state.total - state.done - len(state.running)
        seconds = time.monotonic() - self.begun
        self.samples.append(Sample(seconds, waiting, state.memory, cpu_times() - self._busy))

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """Print a line."""
        print(
            f"{time.monotonic() - self.begun:7.1f} s  [{state.done}/{state.total}] {name} {seconds:.0f} s", flush=True
        )


def cpu_times() -> float:
    """Busy CPU-seconds of the whole machine since it started."""
    fields = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def full(arguments: argparse.Namespace) -> dict[str, Any]:
    """Build a whole profile; the share of core time is measured until the first moment with nothing waiting."""
    depot = Depot(arguments.depot)
    plan, _ = plan_for(depot, library_request(profile=arguments.profile, arch=arguments.arch), Options())
    jobs = arguments.jobs or len(os.sched_getaffinity(0))
    watch = Watch()
    manifest, outcome = build_library(plan, depot, Limits(jobs, arguments.memory), watch)
    wall = time.monotonic() - watch.begun
    tail = next((sample for sample in watch.samples if sample.waiting == 0), None)
    records = outcome.actions.values()
    sizes = {f.path: f.size for f in manifest.files if f.path.startswith("lib/s")}
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
        "sizes": sizes,
        "objects_mb": round(sum(r.object.size for r in records) / 1e6, 1),
        "recipe_key": manifest.recipe_key,
        "per_unit": {r.name: [r.cpu_seconds, round(r.peak_rss / 1e9, 2), r.object.size] for r in records},
    }


def warm(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything is known: look all units up again, beside ccache asked for the same objects, in turn."""
    depot = Depot(arguments.depot)
    wish = library_request(profile=arguments.profile, arch=arguments.arch)
    plan, _ = plan_for(depot, wish, Options())
    _, outcome = build_library(plan, depot, Limits(2), Silent())
    flashdepot_command = [sys.executable, "-m", "flashdepot", "build", "--profile", arguments.profile]
    flashdepot_command += ["--arch", arguments.arch, "--depot", str(arguments.depot), "--json"]
    times: dict[str, list[float]] = {"flashdepot": [], "ccache": []}
    with contextlib.ExitStack() as stack:
        ccache = stack.enter_context(filled_ccache(arguments, depot, plan, outcome)) if arguments.ccache else None
        for _ in range(WARM_RUNS + 1):
            depot.artifacts.remove(plan.recipe.key)
            shutil.rmtree(depot.layout.library(plan.recipe.key), ignore_errors=True)
            begun = time.monotonic()
            done = subprocess.run(flashdepot_command, check=True, capture_output=True, text=True)
            times["flashdepot"].append(time.monotonic() - begun)
            units = json.loads(done.stdout)["units"]
            assert units["compiled"] == 0, units
            if ccache:
                begun = time.monotonic()
                run_two_at_a_time(ccache)
                times["ccache"].append(time.monotonic() - begun)
    result: dict[str, Any] = {
        name: {"median": round(statistics.median(t[1:]), 2), "runs": [round(x, 2) for x in t[1:]]}
        for name, t in times.items()
        if t
    }
    return {"units": len(plan.recipe.selection.units), "cores": arguments.cores, **result}


@contextlib.contextmanager
def filled_ccache(
    arguments: argparse.Namespace, depot: Depot, plan: BuildPlan, outcome: Any
) -> Iterator[list[tuple[list[str], dict[str, str], Path]]]:
    """The command of every unit under ccache in depend mode, with ccache filled.

    Filling it by compiling would take as long as the full build, so the first run of each command goes to a stand-in
    for nvcc that copies the object and the depfile from the depot. A warm ccache never runs the compiler, so its time
    is the real one.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ready").mkdir()
        stand_in = folder / "nvcc"
        stand_in.write_text(
            "#!/bin/bash\n"
            'while [ $# -gt 0 ]; do case "$1" in -MF) d="$2"; shift;; -o) o="$2"; shift;; esac; shift; done\n'
            f'n=$(basename "$o" .o)\ncp {folder}/ready/$n.o "$o"\nsed "s|@OUT@|$o|" {folder}/ready/$n.d > "$d"\n'
        )
        stand_in.chmod(0o755)
        places = plan.places(folder)
        environment = {
            **os.environ,
            "CCACHE_DIR": str(folder / "cache"),
            "CCACHE_DEPEND": "1",
            "CCACHE_COMPILERTYPE": "nvcc",
            "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime",
            "CCACHE_MAXSIZE": "5G",
        }
        commands = []
        for compilation in plan.compilations():
            if compilation.unit is None:
                continue
            record = outcome.actions[compilation.name]
            depot.blobs.link_or_copy(record.object.digest, folder / "ready" / f"{compilation.name}.o")
            inputs = " \\\n ".join(str(places.path(p)) for p in record.inputs)
            (folder / "ready" / f"{compilation.name}.d").write_text(f"@OUT@ : {inputs}\n")
            output = folder / "out" / f"{compilation.name}.o"
            output.parent.mkdir(exist_ok=True)
            command = compilation.command(places, plan.programs, output)
            commands.append(([arguments.ccache, str(stand_in), *command[1:]], environment, plan.tree.root))
        run_two_at_a_time(commands)
        run_two_at_a_time(commands)
        statistics_text = subprocess.run(
            [arguments.ccache, "--print-stats"], env=environment, check=True, capture_output=True, text=True
        ).stdout
        hits = sum(int(line.split()[1]) for line in statistics_text.splitlines() if "cache_hit" in line)
        assert hits >= len(commands), statistics_text
        yield commands


def run_two_at_a_time(commands: list[tuple[list[str], dict[str, str], Path]]) -> None:
    """Run commands as a build tool with two jobs does."""
    running: list[subprocess.Popen[bytes]] = []
    for command, environment, cwd in commands:
        if len(running) == TWO:
            assert running.pop(0).wait() == 0
        running.append(subprocess.Popen(command, env=environment, cwd=cwd, stderr=subprocess.DEVNULL))
    assert all(process.wait() == 0 for process in running)


def front_end(arguments: argparse.Namespace) -> dict[str, Any]:
    """CPU-seconds of some units for several architectures: one front-end pass against upstream's one each."""
    depot = Depot(arguments.depot)
    units = [parse_unit(name) for name in arguments.units.split(",")]
    commands: dict[tuple[str, str], list[str]] = {}
    folder = Path(tempfile.mkdtemp())
    root = folder
    for label, options in (("ours", Options("shared", "size")), ("upstream", Options("native", "none"))):
        plan, _ = plan_for(depot, library_request(profile="full", arch=arguments.arch), options)
        root = plan.tree.root
        selection = Selection(frozenset(u for u in units if u), plan.recipe.selection.features)
        chosen = replace(plan, recipe=replace(plan.recipe, selection=selection))
        places = plan.places(folder)
        for compilation in chosen.compilations():
            if compilation.unit:
                output = folder / label / f"{compilation.name}.o"
                output.parent.mkdir(exist_ok=True)
                commands[compilation.name, label] = compilation.command(places, plan.programs, output)
                if label == "upstream":
                    commands[compilation.name, label] += ["--threads", "4"]  # upstream's default
    children = {}
    for key, command in commands.items():
        environment = {**os.environ, "TMPDIR": str(folder)}
        children[key] = Child(command, cwd=root, env=environment, log=folder / f"{'-'.join(key)}.log")
    costs: dict[tuple[str, str], Cost] = {key: child.wait() for key, child in children.items()}
    for key, cost in costs.items():
        assert cost.status == 0, (folder / f"{'-'.join(key)}.log").read_text()[-2000:]
    rows = {}
    for name in sorted({name for name, _ in costs}):
        ours, theirs = costs[name, "ours"].cpu_seconds, costs[name, "upstream"].cpu_seconds
        rows[name] = {"ours": round(ours, 1), "upstream": round(theirs, 1), "ratio": round(ours / theirs, 3)}
    shutil.rmtree(folder)
    return {"arch": arguments.arch, "cpu_seconds": rows}


if __name__ == "__main__":
    main()
