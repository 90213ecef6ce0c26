"""Compilers that make one output after the other: who is asked, what it costs, and what becomes of one that ends."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.depot import Depot
from flashdepot.errors import CompileError
from flashdepot.events import BuildProgress
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action
from support.recipes import TOOLS, make_recipe
from support.tools import posix

PROGRAM = """
import json, os, pathlib, signal, sys, time
import common
for line in sys.stdin:
    order = json.loads(line)
    job = order["job"]
    sum(range(200_000))
    if job.get("edits") and common.TEXT == "old":
        pathlib.Path(common.__file__).write_text("TEXT = 'new'")
    if job.get("dies"):
        print("out of luck", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL if job["dies"] == 9 else signal.SIGSEGV)
    time.sleep(job.get("sleeps", 0))
    answer = {"status": "made", "log": f"made {job['name']}", "peak_memory_bytes": 1000}
    if job.get("fails"):
        answer = {"status": "failed", "log": "", "error": "no such tile", "peak_memory_bytes": 1000}
    else:
        pathlib.Path(order["object"]).write_text(f"{job['name']} {common.TEXT}")
        pathlib.Path(order["depfile"]).write_text(f"{order['object']}: {common.__file__}")
    with open(sys.argv[1], "a") as journal:
        journal.write(f"{os.getpid()} {job['name']}\\n")
    print(job.get("answer") or json.dumps(answer), flush=True)
"""

Job = dict[str, object]
Build = Callable[..., BuildOutcome]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def build(tmp_path: Path, journal: Path) -> Build:
    source = tmp_path / "src"
    source.mkdir()
    (source / "program.py").write_text(PROGRAM)
    (source / "common.py").write_text("TEXT = 'old'")
    time.sleep(0.06)  # files of the same clock tick count as changed
    depot = Depot(tmp_path / "depot")

    def run(jobs: Sequence[Job], *, at_once: int = 1, kinds: Sequence[str] = ("one",)) -> BuildOutcome:
        words = ("{python}", "-B", "{src}/program.py", str(journal))
        actions = [
            Action(str(job["name"]), "src", "program.py", (*words, json.dumps(job)), TOOLS[:1], resident=kind)
            for job, kind in zip(jobs, list(kinds) * len(jobs), strict=False)
        ]
        with depot.workspace() as work:
            places = PlaceNames((("src", source),))
            limits = Limits(at_once, 64 << 30)
            executor = LocalExecutor(places, {"python": sys.executable}, dict(os.environ), limits, work)
            return Engine(depot, make_recipe(), executor, {}, BuildProgress(), work).run(actions)

    return run


def jobs(*names: str, **more: object) -> list[Job]:
    return [{"name": name, **more} for name in names]


def processes(journal: Path) -> set[str]:
    return {line.split()[0] for line in journal.read_text().splitlines()}


def text_of(outcome: BuildOutcome, name: str, folder: Path) -> str:
    return Depot(folder / "depot").blobs.verified_path(outcome.actions[name].object.digest).read_text()


def test_one_process_makes_all_that_one_at_a_time_allows(build, journal, tmp_path) -> None:
    outcome = build(jobs("a", "b", "c"))
    assert len(journal.read_text().splitlines()) == 3
    assert len(processes(journal)) == 1
    record = outcome.actions["b"]
    assert text_of(outcome, "b", tmp_path) == "b old"
    assert list(record.inputs) == ["{src}/common.py"]
    assert record.peak_rss == 1000
    assert outcome.actions["a"].cpu_seconds > 0, "its start counts"
    assert [not Path(f"/proc/{pid}").exists() for pid in processes(journal)] == [True], "it ends with the build"


def test_two_at_once_are_two_processes_and_another_kind_is_another(build, journal) -> None:
    build(jobs("a", "b", "c", "d", sleeps=0.2), at_once=2)
    assert len(processes(journal)) == 2
    build(jobs("e", "f", "g", "h"), kinds=("sm_90a", "sm_100f"))
    assert len(processes(journal)) == 2 + 2


def test_a_job_that_fails_is_that_jobs_failure(build) -> None:
    with pytest.raises(CompileError, match="no such tile"):
        build(jobs("a", fails=True))
    assert build(jobs("a")).compiled == {"a"}


@pytest.mark.parametrize("more", [{"dies": 11}, {"answer": "Segmentation fault"}], ids=["killed", "no answer"])
def test_a_process_that_ends_takes_its_own_job_and_no_other(build, more) -> None:
    assert build(jobs("a")).compiled == {"a"}
    with pytest.raises(CompileError, match="b") as failure:
        build([*jobs("b", **more)])
    assert ("out of luck" in str(failure.value)) == ("dies" in more)
    assert build(jobs("c", "d")).compiled == {"c", "d"}


@posix("signal by which a process ends for lack of memory")
def test_one_that_the_system_kills_for_memory_is_tried_again(build, journal) -> None:
    with pytest.raises(CompileError, match="killed for memory 4 times"):
        build(jobs("a", dies=9))
    assert not journal.exists()


def test_what_was_imported_before_an_edit_is_not_used_after_it(build, journal, tmp_path) -> None:
    """The process that edits its own source read it before: what it makes then is made again, by one that reads it after."""
    outcome = build([*jobs("a", edits=True), *jobs("b")])
    assert [text_of(outcome, name, tmp_path) for name in "ab"] == ["a new", "b new"]
    assert len(processes(journal)) > 1
