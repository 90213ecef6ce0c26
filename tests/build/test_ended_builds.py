"""A build is killed or interrupted at any moment, and next to another of the same units."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from build.bench import FAKE, Bench
from flashdepot.depot.verify import verify
from support.tools import KILL, posix

DRIVER = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from build.bench import Bench, Limits
Bench(Path({folder!r})).build({names!r}, Limits(jobs=3, memory=64 * 10**9))
"""


def start(bench: Bench, names: Sequence[str]) -> subprocess.Popen[bytes]:
    tests = str(Path(__file__).parents[1])
    code = DRIVER.format(tests=tests, folder=str(bench.folder), names=list(names))
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a build and the compilers that it started: on Windows those end with it."""
    if os.name == "nt":
        process.kill()
    else:
        os.killpg(process.pid, KILL)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.slow
def test_kill_at_any_moment_loses_only_what_was_running(bench) -> None:
    names = [f"u{i}" for i in range(40)]
    for name in names:
        bench.source(f"{name}.src", f"sleep 0.02\n# {name}")
    chance = random.Random(7)
    finished: set[str] = set()
    for _ in range(20):
        process, so_far = start(bench, names), len(bench.journal)
        wait_for(lambda: process.poll() is not None or len(bench.journal) > so_far)  # noqa: B023  (called at once)
        time.sleep(chance.random() * 0.3)
        with contextlib.suppress(ProcessLookupError):  # it had finished
            end(process)
        process.wait()
        assert not verify(bench.depot).problems
        recorded = {r.name for p in bench.depot.actions.files() if (r := bench.depot.actions.read(p))}
        assert recorded >= finished
        finished = recorded
    assert finished, "the kills must have let something finish"
    before = len(bench.journal)
    outcome = bench.build(names)
    assert set(names) - outcome.compiled == finished
    assert len(bench.journal) - before == 2 * len(outcome.compiled)


def test_two_builds_at_once_compile_nothing_twice(bench) -> None:
    names = [f"u{i}" for i in range(12)]
    for name in names:
        bench.source(f"{name}.src", f"sleep 0.1\n# {name}")
    both = [start(bench, names), start(bench, names)]
    assert [process.wait() for process in both] == [0, 0]
    starts = [line for line in bench.journal if line.startswith("start")]
    assert sorted(starts) == sorted(f"start {name}" for name in names)


def test_a_build_continues_when_the_other_process_that_compiled_a_unit_is_killed(bench) -> None:
    bench.source("a.src", "sleep 1.5")
    other = start(bench, ["a"])
    wait_for(lambda: bench.journal == ["start a"])
    bench_two = start(bench, ["a"])
    time.sleep(0.5)
    end(other)
    other.wait()
    assert bench_two.wait(timeout=30) == 0
    assert bench.journal.count("start a") == 2


@pytest.mark.parametrize("sent", [signal.SIGINT, KILL])
def test_compilers_and_what_they_started_end_with_the_build(bench, sent) -> None:
    bench.source("a.src", "spawn\nsleep 60")
    process = start(bench, ["a"])
    wait_for(lambda: bench.journal == ["start a"] and bool(orphans(bench)))
    os.kill(process.pid, sent)
    process.wait(timeout=20)
    wait_for(lambda: not orphans(bench) and not compilers(bench), 5)


@posix("descriptors that a child inherits with their locks")
def test_a_compiler_that_outlives_its_build_keeps_its_lock(bench) -> None:
    bench.source("a.src", "sleep 60")
    process = start(bench, ["a"])
    wait_for(lambda: bench.journal == ["start a"])
    (watcher,) = {child.pid for child in psutil.Process(process.pid).children()} - set(compilers(bench))
    os.kill(watcher, KILL)
    os.kill(process.pid, KILL)
    process.wait()
    (compiler,) = compilers(bench)
    (lock,) = (path for path in (bench.folder / "depot" / "locks").iterdir() if path.stem != "intents")
    assert bench.depot.try_lock(lock.stem) is None
    os.kill(compiler, KILL)
    wait_for(lambda: bench.depot.try_lock(lock.stem) is not None, 5)


def compilers(bench: Bench) -> list[int]:
    """The compilers that run for a bench."""
    return [pid for pid, line in running() if str(FAKE) in line and str(bench.folder) in line]


def orphans(bench: Bench) -> list[str]:
    """What compilers of a bench have started."""
    return [line for _, line in running() if f"{bench.folder / 'journal'} orphan" in line]


def running() -> list[tuple[int, str]]:
    """Process ids and command lines of all that runs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append((process.pid, " ".join(process.cmdline())))
    return found
