from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashdepot.cli.app import app
from flashdepot.depot import Depot
from flashdepot.depot.actions import ACTION_SCHEMA
from flashdepot.depot.verify import VerifyReport, verify
from flashdepot.errors import IntegrityError
from flashdepot.model.manifest import MANIFEST_SCHEMA
from support.depots import flip_bit, make_request, record_unit, rewrite_record, store_library, truncate


def test_a_sound_depot_is_clean(depot: Depot, tmp_path: Path):
    record = record_unit(depot, tmp_path)
    manifest = store_library(depot, tmp_path)
    depot.libraries.materialise(manifest)
    size = manifest.size + record.object.size
    expected = VerifyReport(checked=4 + 3, bytes=size, folders=0, folder_bytes=0, skipped=0, problems=())
    assert verify(depot) == expected


def test_a_depot_that_does_not_exist_is_clean(depot: Depot):
    assert verify(depot) == VerifyReport(0, 0, 0, 0, 0, ())
    assert not depot.root.exists()


@pytest.mark.parametrize("damage", [flip_bit, truncate])
def test_a_damaged_object_is_found_once_and_then_out_of_the_way(
    depot: Depot, tmp_path: Path, damage: Callable[[Path], None]
):
    record = record_unit(depot, tmp_path, content=b"object" * 100)
    damage(depot.layout.blob(record.object.digest))
    first = verify(depot).problems
    assert len(first) == 2
    assert record.object.digest in first[0]
    assert "The object of fwd_hdim64_bf16 is lost" in first[1]
    assert verify(depot).problems == ()


def test_each_problem_has_a_line_of_its_own(depot: Depot, tmp_path: Path):
    record = record_unit(depot, tmp_path, content=b"object" * 100)
    flip_bit(depot.layout.blob(record.object.digest))
    done = CliRunner().invoke(app, ["depot", "verify", "--json", "--depot", str(depot.root)])
    assert done.exit_code == IntegrityError.exit_code
    *_, head, first, second, _ = done.stderr.splitlines()
    assert json.loads(done.stdout)["problems"] == [first.strip(), second.strip()]
    assert head == f"error: {depot.root}:"
    assert record.object.digest in first
    assert "The object of fwd_hdim64_bf16 is lost" in second


def test_a_library_that_lost_a_file_is_reported_until_it_is_stored_again(depot: Depot, tmp_path: Path):
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
def test_a_damaged_record_is_moved_aside_and_named(depot: Depot, tmp_path: Path, which: str, content: str):
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


def test_a_record_under_another_key_than_its_contents_give_is_damaged(depot: Depot, tmp_path: Path):
    record = record_unit(depot, tmp_path)
    path = depot.layout.action(record.action_key)
    rewrite_record(path, lambda data: data | {"inputs": {"{upstream}/a.h": "7" * 64}})
    assert "do not give the key" in verify(depot).problems[0]


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_library_folder_that_differs_from_its_manifest_is_named_and_the_next_get_mends_it(
    depot: Depot, tmp_path: Path, damage: Callable[[Path], None]
):
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


def test_rot_that_leaves_size_and_time_as_they_were_is_found(depot: Depot, tmp_path: Path):
    manifest = store_library(depot, tmp_path)
    blob = depot.layout.blob(manifest.files[1].digest)
    before = blob.stat()
    flip_bit(blob)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert any(manifest.files[1].digest in problem for problem in verify(depot).problems)
