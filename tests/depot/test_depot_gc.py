import contextlib
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from depot_writer import unit_content

from flashdepot.depot import Depot, gc
from flashdepot.depot.verify import verify
from flashdepot.errors import MissingToolError
from flashdepot.files.folders import touch
from flashdepot.files.locks import try_lock_file
from support.depots import (
    find_unit,
    flip_bit,
    make_depot_older,
    make_older,
    make_record,
    make_request,
    put_bytes,
    record_unit,
    rewrite_record,
    store_library,
)
from support.tools import posix

Start = Callable[..., subprocess.Popen[str]]
DAYS = 24.0


def collect(depot: Depot, older_than: timedelta = gc.OLDER_THAN) -> list[str]:
    """Run gc; :returns: the sorted kinds of what it removed."""
    return sorted(r.kind for r in gc.run(depot, gc.plan(depot, older_than)))


def fill_up(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)


def test_nothing_is_planned_for_a_depot_that_does_not_exist(depot):
    assert gc.plan(depot) == ()
    assert not depot.root.exists()


def test_an_action_that_was_not_used_lately_goes_with_its_intent_and_object(depot, tmp_path):
    record = record_unit(depot, tmp_path, content=b"o" * 1000)
    make_depot_older(depot.root, hours=31 * DAYS)
    planned = gc.plan(depot)
    assert depot.layout.action(record.action_key).exists(), "a plan changes nothing"
    assert sorted(r.kind for r in planned) == ["action", "blob", "intent", "lock"]
    assert sum(r.bytes for r in planned) > 1000
    assert gc.run(depot, planned) == planned
    assert gc.plan(depot) == ()
    assert find_unit(depot, record) is None
    assert verify(depot).problems == ()


def test_an_action_used_lately_keeps_its_object(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    make_depot_older(depot.root, hours=29 * DAYS)
    assert collect(depot) == ["lock"]
    make_depot_older(depot.root, hours=100 * DAYS)
    assert find_unit(Depot(depot.root), record), "this is the use"
    assert collect(depot) == []
    assert find_unit(depot, record)


def test_an_intent_stays_as_long_as_one_of_its_actions_does(depot, tmp_path):
    (tmp_path / "x.o").write_bytes(b"object")
    old, new = (depot.actions.record(make_record(**{"a.h": c * 64}), tmp_path / "x.o") for c in "12")
    make_depot_older(depot.root, hours=100 * DAYS)
    find_unit(depot, new)
    assert collect(depot) == ["action", "lock"]
    assert find_unit(depot, new)
    assert find_unit(depot, old) is None


def test_an_intent_goes_whose_actions_are_gone_already(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    depot.layout.action(record.action_key).unlink()
    make_depot_older(depot.root, hours=31 * DAYS)
    assert "intent" in collect(depot)
    assert not depot.layout.intent(record.intent_key).exists()


def test_an_intent_stays_that_was_used_again_after_the_plan(depot, tmp_path):
    record_unit(depot, tmp_path)
    make_depot_older(depot.root, hours=31 * DAYS)
    planned = gc.plan(depot)
    (tmp_path / "x.o").write_bytes(b"another")
    new = depot.actions.record(make_record(**{"a.h": "3" * 64}), tmp_path / "x.o")
    assert "intent" not in {removal.kind for removal in gc.run(depot, planned)}
    assert find_unit(depot, new)


def test_what_a_manifest_needs_stays_however_old_and_goes_with_it(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    depot.libraries.materialise(manifest)
    make_depot_older(depot.root, hours=1000 * DAYS)
    assert collect(depot) == []
    depot.layout.artifact(manifest.recipe_key).unlink()
    planned = gc.plan(depot)
    assert sorted(r.kind for r in planned) == ["blob"] * 3 + ["library"]
    assert manifest.size < sum(r.bytes for r in planned) < manifest.size + 10_000, "bytes shared with a blob count once"
    gc.run(depot, planned)
    assert not depot.layout.library(manifest.recipe_key).exists()
    assert list(depot.blobs.files()) == []


def test_a_manifest_of_a_later_version_keeps_its_files(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    path = depot.layout.artifact(manifest.recipe_key)
    rewrite_record(path, lambda data: data | {"schema": 99})
    make_depot_older(depot.root, hours=1000 * DAYS)
    assert collect(depot) == []
    assert verify(depot).skipped == 1
    assert path.exists()


def test_a_blob_that_was_just_written_stays_although_nothing_refers_to_it_yet(depot):
    digest = put_bytes(depot, b"its record comes next")
    assert collect(depot, timedelta(0)) == []
    make_older(depot.layout.blob(digest), hours=1.1)
    assert collect(depot, timedelta(0)) == ["blob"]


def test_a_blob_that_comes_into_use_after_the_plan_stays(depot, tmp_path):
    put_bytes(depot, b"object")
    make_depot_older(depot.root, hours=100 * DAYS)
    planned = gc.plan(depot)
    assert [r.kind for r in planned] == ["blob"]
    record = record_unit(Depot(depot.root), tmp_path, content=b"object")
    assert gc.run(depot, planned) == ()
    assert find_unit(Depot(depot.root), record)


def test_an_action_that_is_hit_after_the_plan_stays_with_its_object(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    make_depot_older(depot.root, hours=100 * DAYS)
    planned = gc.plan(depot)
    assert find_unit(Depot(depot.root), record)
    assert {r.kind for r in gc.run(depot, planned)} == {"lock"}
    assert find_unit(Depot(depot.root), record)


def nine_hours_ago(depot: Depot, start: Start) -> subprocess.Popen[str]:
    """A build that runs and began then."""
    builder = start("work", depot.root)
    assert builder.stdout
    workspace = depot.layout.temporary / builder.stdout.readline().strip()
    begun = str(int(time.time() - 9 * 3600))
    earlier = workspace.with_name(workspace.name.replace(workspace.name.split("-")[1], begun))
    workspace.with_name(f"{workspace.name}.lock").rename(earlier.with_name(f"{earlier.name}.lock"))
    workspace.rename(earlier)
    return builder


@posix("renaming of a folder with an open lock")
def test_what_a_running_build_has_used_stays_however_little_is_to_be_kept(depot, tmp_path, start):
    builder = nine_hours_ago(depot, start)
    used, unused = (record_unit(depot, tmp_path, name, name.encode()) for name in ("used", "unused"))
    make_depot_older(depot.root, hours=8)
    for path in (depot.layout.action(unused.action_key), depot.layout.blob(unused.object.digest)):
        make_older(path, hours=11)
    make_older(depot.layout.intent(unused.intent_key), hours=11)
    assert collect(depot, timedelta(0)) == ["action", "blob", "intent"]
    assert find_unit(Depot(depot.root), used)
    builder.kill()
    builder.wait()
    make_depot_older(depot.root, hours=8)
    assert collect(depot, timedelta(0)) == ["action", "blob", "intent", "workspace"]
    assert list(depot.layout.temporary.iterdir()) == []


def test_a_lock_whose_workspace_is_gone_goes_unless_it_is_held(depot):
    held, free = (depot.layout.temporary / f"work-{number}-0000.lock" for number in (1, 2))
    free.parent.mkdir(parents=True, exist_ok=True)
    free.touch()
    with try_lock_file(held):
        assert collect(depot, timedelta(days=1)) == ["lock"]
        assert (held.exists(), free.exists()) == (True, False)


def test_a_workspace_goes_when_its_process_was_killed_and_not_before(depot, start):
    builder = start("work", depot.root)
    assert builder.stdout
    folder = depot.layout.temporary / builder.stdout.readline().strip()
    assert collect(depot) == []
    assert (folder / "part.o").exists()
    builder.kill()
    builder.wait()
    planned = gc.plan(depot)
    assert [(r.kind, r.bytes) for r in planned] == [("workspace", 5000)]
    gc.run(depot, planned)
    assert list(depot.layout.temporary.iterdir()) == []


def test_leftovers_of_kills_quarantine_and_old_logs_go_and_fresh_ones_stay(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    flip_bit(depot.layout.blob(record.object.digest))
    assert find_unit(Depot(depot.root), record) is None
    log = depot.log_path("unit", record.intent_key)
    log.write_text("warning")
    half = depot.layout.artifact("0" * 64).with_name(".half.json.1.abcd.tmp")
    half.parent.mkdir()
    half.write_text("{")
    put = depot.layout.temporary / "put-0123"
    put.write_bytes(b"half a blob")
    assert collect(depot) == ["quarantine"]
    for path in (log, half, put):
        make_older(path, hours=31 * DAYS)
    assert collect(depot) == ["log", "temporary", "temporary"]
    assert not any(path.exists() for path in (log, half, put))


@pytest.mark.parametrize("kind", ["toolchain", "upstream", "download"])
def test_what_was_fetched_counts_as_used_from_the_last_use_on(depot, kind):
    folder = depot.root / f"{kind}s" / "cuda-13.0"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "nvcc").write_bytes(b"x" * 4000)
    make_depot_older(depot.root, hours=100 * DAYS)
    planned = gc.plan(depot)
    assert [(r.kind, r.bytes) for r in planned] == [(kind, 4000)]
    touch(folder)
    assert gc.run(depot, planned) == (), "it came into use after the plan"
    assert collect(depot) == []
    make_depot_older(depot.root, hours=100 * DAYS)
    assert collect(depot) == [kind]
    assert list(folder.parent.iterdir()) == []


@posix("renaming of a folder with an open lock")
def test_a_compiler_that_a_running_build_has_used_stays_however_little_is_to_be_kept(depot, start):
    folder = depot.root / "toolchains" / "cuda-13.0"
    folder.mkdir(parents=True)
    nine_hours_ago(depot, start)
    make_older(folder, hours=9)
    assert collect(depot, timedelta(0)) == []
    make_older(folder, hours=10)
    assert collect(depot, timedelta(0)) == ["toolchain"]


def test_a_lock_that_is_held_stays_however_old(depot):
    held = depot.try_lock("unit")
    assert held
    make_depot_older(depot.root, hours=100 * DAYS)
    assert collect(depot) == []
    held.release()
    assert collect(depot) == ["lock"]


def test_a_full_disk_can_be_freed(small_disk, tmp_path):
    depot = Depot(small_disk / "depot")
    store_library(depot, tmp_path)
    put_bytes(depot, b"x" * 1_000_000)
    make_depot_older(depot.root, hours=100 * DAYS)
    fill_up(small_disk)
    with pytest.raises(MissingToolError, match="full"):
        put_bytes(depot, b"y" * 100_000)
    assert collect(depot) == ["blob"]
    assert put_bytes(depot, b"y" * 100_000)
    assert depot.find(make_request()).taken


def test_gc_next_to_a_writer_that_reuses_old_blobs_loses_nothing(depot, start):
    count = 150
    for number in range(count):
        put_bytes(depot, unit_content(number))
    stray = put_bytes(depot, b"nobody needs it")
    make_depot_older(depot.root, hours=100 * DAYS)
    writer = start("record", depot.root, 0, count)
    assert writer.stdout
    stale = gc.plan(depot)  # all blobs, most of which come into use before they are reached
    runs = 0
    while writer.poll() is None:
        third = stale[runs % 3 :: 3]
        gc.run(depot, third)
        gc.run(depot, gc.plan(depot, timedelta(0)))
        runs += 1
    assert writer.returncode == 0
    assert runs > 1
    gc.run(depot, stale)
    assert writer.stdout.read().split() == [f"unit-{n}" for n in range(count)]
    assert depot.blobs.find(stray) is None
    fresh = Depot(depot.root)
    assert all(find_unit(fresh, make_record(f"unit-{n}")) for n in range(count))
    assert verify(depot).problems == ()
