import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from flashdepot.depot import Depot
from flashdepot.depot.verify import verify
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_json
from flashdepot.model.manifest import Manifest
from support.depots import find_unit, make_record, make_request, store_library

Start = Callable[..., subprocess.Popen[str]]
MOMENTS = random.Random(20250101)


def kill_at_random(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Let each write something, kill -9 each at a random moment, and return all lines that they finished."""
    lines = []
    for process in processes:
        assert process.stdout
        lines.append(process.stdout.readline())
    for process in processes:
        time.sleep(MOMENTS.uniform(0, 0.03))
        process.kill()
    for process in processes:
        assert process.stdout
        lines += process.stdout.read().splitlines(keepends=True)
        process.wait()
    return [line.strip() for line in lines if line.endswith("\n")]


def test_whatever_was_finished_before_a_kill_is_found_and_the_depot_is_clean(depot, start):
    finished: set[str] = set()
    for round_ in range(12):
        # Two write the same units, the third others: all are killed.
        processes = [start("record", depot.root, round_ * 20 + first, 10_000) for first in (0, 0, 7)]
        finished |= set(kill_at_random(processes))
        fresh = Depot(depot.root)
        assert all(find_unit(fresh, make_record(name)) for name in finished)
    report = verify(depot)
    assert report.problems == ()
    assert report.checked >= 3 * len(finished)


def test_a_kill_while_libraries_are_stored_and_exported_leaves_whole_ones(depot, start, tmp_path):
    out = tmp_path / "out"
    for _ in range(12):
        finished = kill_at_random([start("library", depot.root, out)])
        assert finished
        assert verify(depot).problems == ()
        fresh = Depot(depot.root)
        assert all(fresh.artifacts.load(key) for key in finished)
        choice = fresh.find(make_request())
        assert choice.taken
        assert choice.rejected == ()
        if (out / "manifest.json").exists():
            assert_whole(out)
    depot.export(store_library(depot, tmp_path / "sources"), out)
    assert_whole(out)


def assert_whole(library: Path) -> None:
    """Whether every file of a library is what its manifest says."""
    manifest = Manifest.from_json(read_json(library / "manifest.json"))
    assert {f.path: sha256_file(library / f.path) for f in manifest.files if not f.link} == {
        f.path: f.digest for f in manifest.files if not f.link
    }


def test_two_processes_that_record_the_same_units_at_once_both_succeed(depot, start):
    writers = [start("record", depot.root, 0, 40) for _ in range(2)]
    for writer in writers:
        assert writer.stdout
        assert len(writer.stdout.read().split()) == 40
        assert writer.wait() == 0
    assert all(find_unit(Depot(depot.root), make_record(f"unit-{n}")) for n in range(40))
    assert verify(depot).problems == ()
    assert list(depot.layout.temporary.iterdir()) == []
