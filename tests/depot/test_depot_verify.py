"""What is in a depot, how much it is, and what of it is damaged."""

import json
import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashdepot.cli.app import app
from flashdepot.depot import Depot, gc
from flashdepot.depot.actions import ACTION_SCHEMA
from flashdepot.depot.gc import usage
from flashdepot.depot.verify import VerifyReport, verify
from flashdepot.errors import IntegrityError
from flashdepot.host.probe import this_platform
from flashdepot.model.manifest import MANIFEST_SCHEMA, Manifest
from support.depots import (
    flip_and_keep_times,
    flip_bit,
    make_depot_older,
    make_request,
    record_unit,
    rewrite_record,
    store_library,
    truncate,
)
from support.recipes import architectures
from support.tools import flashdepot_here


def test_a_sound_depot_is_clean(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    manifest = store_library(depot, tmp_path)
    depot.libraries.materialise(manifest)
    size = manifest.size + record.object.size
    expected = VerifyReport(checked=4 + 3, bytes=size, folders=0, folder_bytes=0, skipped=0, problems=())
    assert verify(depot) == expected


def test_a_depot_that_does_not_exist_is_clean(depot):
    assert verify(depot) == VerifyReport(0, 0, 0, 0, 0, ())
    assert not depot.root.exists()


@pytest.mark.parametrize("damage", [flip_bit, truncate, lambda path: flip_and_keep_times(path, 0, 0)])
def test_a_damaged_object_is_found_once_and_then_out_of_the_way(depot, tmp_path, damage):
    record = record_unit(depot, tmp_path, content=b"object" * 100)
    damage(depot.layout.blob(record.object.digest))
    first = verify(depot).problems
    assert len(first) == 2
    assert record.object.digest in first[0]
    assert "The object of fwd_hdim64_bf16 is lost" in first[1]
    assert verify(depot).problems == ()


def test_each_problem_has_a_line_of_its_own(depot, tmp_path):
    record = record_unit(depot, tmp_path, content=b"object" * 100)
    flip_bit(depot.layout.blob(record.object.digest))
    done = CliRunner().invoke(app, ["depot", "verify", "--json", "--depot", str(depot.root)])
    assert done.exit_code == IntegrityError.exit_code
    *_, head, first, second, _ = done.stderr.splitlines()
    assert json.loads(done.stdout)["problems"] == [first.strip(), second.strip()]
    assert head == f"error: {depot.root}:"
    assert record.object.digest in first
    assert "The object of fwd_hdim64_bf16 is lost" in second


def test_a_library_that_lost_a_file_is_reported_until_it_is_stored_again(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    depot.layout.blob(manifest.files[1].digest).unlink()
    for _ in range(2):
        [problem] = verify(depot).problems
        assert manifest.files[1].path in problem
        assert "flashdepot get" in problem
    store_library(depot, tmp_path)
    assert verify(depot).problems == ()


@pytest.mark.parametrize("content", ["", "[]", '{"schema": SCHEMA}', '{"schema": 1', "[" * 100_000])
@pytest.mark.parametrize("which", ["action", "intent", "artifact"])
def test_a_damaged_record_is_moved_aside_and_named(depot, tmp_path, which, content):
    record = record_unit(depot, tmp_path)
    manifest = store_library(depot, tmp_path)
    path = {
        "action": depot.layout.action(record.action_key),
        "intent": depot.layout.intent(record.intent_key),
        "artifact": depot.layout.artifact(manifest.recipe_key),
    }[which]
    schema = MANIFEST_SCHEMA if which == "artifact" else ACTION_SCHEMA
    path.write_text(content.replace("SCHEMA", str(schema)))
    [problem] = verify(depot).problems
    assert "quarantine" in problem
    assert not path.exists()
    assert verify(depot).problems == ()


def test_a_record_under_another_key_than_its_contents_give_is_damaged(depot, tmp_path):
    record = record_unit(depot, tmp_path)
    path = depot.layout.action(record.action_key)
    rewrite_record(path, lambda data: data | {"inputs": {"{upstream}/a.h": "7" * 64}})
    assert "do not match its key" in verify(depot).problems[0]


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_library_folder_that_differs_from_its_manifest_is_named_and_the_next_get_fixes_it(depot, tmp_path, damage):
    manifest = store_library(depot, tmp_path)
    folder = depot.libraries.materialise(manifest)
    damage(folder / "manifest.json")
    [problem] = verify(depot).problems
    assert f"{folder} does not hold what its manifest says: manifest.json" in problem
    fresh = Depot(depot.root)
    choice = fresh.find(make_request())
    assert choice.taken
    fresh.libraries.materialise(choice.taken)
    assert verify(depot).problems == ()


def flashdepot(*words: str, depot: Depot) -> subprocess.CompletedProcess[str]:
    return flashdepot_here(*words, "--depot", depot.root)


def bytes_below(folder: Path) -> int:
    files = {
        (s.st_dev, s.st_ino): s.st_size
        for p in folder.rglob("*")
        if p.is_file() and not p.is_symlink()
        for s in [p.lstat()]
    }
    return sum(files.values())


def fill(depot: Depot, tmp_path: Path) -> None:
    """A library, an object that is in none, a compiler, and a log."""
    depot.libraries.materialise(store_library(depot, tmp_path))
    record_unit(depot, tmp_path, content=b"o" * 1000)
    (depot.layout.toolchains / "cuda").mkdir(parents=True)
    (depot.layout.toolchains / "cuda" / "nvcc").write_bytes(b"n" * 5000)
    (depot.layout.toolchains / "probe-0.json").write_bytes(b"answers")
    depot.layout.logs.mkdir(exist_ok=True)
    (depot.layout.logs / "a.log").write_bytes(b"l" * 100)


def test_all_that_is_on_disk_is_counted_once_by_what_it_is(depot, tmp_path) -> None:
    assert all(kind.bytes == 0 for kind in usage(depot))
    fill(depot, tmp_path)
    kinds = {kind.kind: kind for kind in usage(depot)}
    assert sum(kind.bytes for kind in kinds.values()) == bytes_below(depot.root)
    assert kinds["libraries"].count == 1
    assert kinds["objects"].bytes >= 1000
    assert (kinds["compilers"].count, kinds["compilers"].bytes) == (1, 5007)
    assert (kinds["logs"].count, kinds["logs"].bytes) == (1, 100)
    document = json.loads(flashdepot("depot", "usage", "--json", depot=depot).stdout)
    assert document["bytes"] == bytes_below(depot.root)
    page = flashdepot("depot", "usage", depot=depot)
    assert "5.0 kB" in page.stdout
    assert "today" in page.stdout
    assert "depot clean" in page.stderr


def test_the_list_of_libraries_has_a_head_sizes_and_when_they_were_used(depot, tmp_path) -> None:
    manifest = store_library(depot, tmp_path)
    make_depot_older(depot.root, hours=49)
    done = flashdepot("depot", "ls", depot=depot)
    head, row = done.stdout.splitlines()
    assert {"library", "GPUs", "size", "kernels"} <= set(head.split())
    assert row.startswith(manifest.recipe_key[:12])
    assert "2 days ago" in row
    assert ("; for " in row) is (manifest.platform != this_platform())
    assert "1 library, " in done.stderr


def test_of_libraries_that_can_do_the_same_the_list_says_what_made_each(depot, tmp_path) -> None:
    store_library(depot, tmp_path, name="one", c_layer="1" * 64)
    store_library(depot, tmp_path, name="two", c_layer="2" * 64)
    store_library(depot, tmp_path, name="other", sass=architectures("80"))
    rows = flashdepot("depot", "ls", depot=depot).stdout.splitlines()[1:]
    assert sorted(
        c_layer for row in rows for c_layer in re.findall(r"; C layer of flashdepot \S+ \((\d{8})\)$", row)
    ) == [
        "11111111",
        "22222222",
    ]


def test_a_library_with_kernels_that_are_untested_on_some_gpus_says_so_wherever_it_is_shown(depot, tmp_path) -> None:
    manifest = store_library(depot, tmp_path, untested_gpus={"fa4": architectures("100,120")})
    assert depot.artifacts.load(manifest.recipe_key) == manifest
    assert "(untested: fa4 on 10.0, 12.0)" in flashdepot("depot", "ls", depot=depot).stdout
    shown = flashdepot("depot", "show", manifest.recipe_key[:8], depot=depot).stdout
    assert "untested       fa4 on 10.0, 12.0\n" in shown
    document = json.loads(flashdepot("depot", "show", manifest.recipe_key[:8], "--json", depot=depot).stdout)
    assert document["unproven"] == {"fa4": ["100", "120"]}
    for wrong in (["100"], {"fa4": "100"}, {"fa4": ["ten"]}):
        with pytest.raises(ValueError, match="unproven"):
            Manifest.from_json({**document, "unproven": wrong})


def test_clean_frees_at_once_what_no_library_needs_and_all_frees_those_too(depot, tmp_path) -> None:
    fill(depot, tmp_path)
    before = bytes_below(depot.root)
    shown = flashdepot("depot", "clean", "--dry-run", depot=depot)
    assert "5.0 kB  1 compiler: can be made again" in shown.stderr
    assert "7 bytes  1 file: can be made again" in shown.stderr
    assert bytes_below(depot.root) == before
    assert flashdepot("depot", "gc", "--older-than", "0", "--yes", depot=depot).returncode == 0
    assert flashdepot("depot", "clean", "--yes", depot=depot).returncode == 0
    fresh = Depot(depot.root)
    kinds = {kind.kind: kind for kind in usage(fresh)}
    assert kinds["libraries"].count == 1
    assert kinds["objects"].count == kinds["compilers"].count == kinds["logs"].count == 0
    assert fresh.find(make_request()).taken is not None
    assert verify(fresh).problems == ()
    document = json.loads(flashdepot("depot", "clean", "--all", "--json", depot=depot).stdout)
    assert document["done"]
    assert list(Depot(depot.root).artifacts.manifests()) == []
    assert list(depot.blobs.files()) == []


def test_what_a_command_uses_is_not_cleaned_away(depot, tmp_path) -> None:
    with depot.workspace():
        record = record_unit(depot, tmp_path, content=b"just made")
        planned = gc.plan(depot, timedelta(0), grace=0)
        assert [removal.kind for removal in planned] == []
        assert depot.layout.action(record.action_key).exists()


def test_a_plan_that_forgets_a_library_frees_its_files_and_changes_nothing(depot, tmp_path) -> None:
    manifest = store_library(depot, tmp_path)
    planned = gc.plan(depot, timedelta(0), grace=0, forget=frozenset([manifest.recipe_key]))
    assert {"manifest", "blob"} <= {removal.kind for removal in planned}
    assert depot.artifacts.load(manifest.recipe_key) is not None
    gc.run(depot, planned)
    assert Depot(depot.root).artifacts.load(manifest.recipe_key) is None
    assert not any(os.scandir(depot.root / "artifacts"))
