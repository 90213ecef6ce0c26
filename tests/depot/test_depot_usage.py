from __future__ import annotations

import json
import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from flashdepot.depot import Depot, gc
from flashdepot.depot.gc import usage
from flashdepot.depot.verify import verify
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import parse_list
from support.depots import make_depot_older, make_request, record_unit, store_library
from support.tools import flashdepot_here


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
    depot.layout.logs.mkdir(exist_ok=True)
    (depot.layout.logs / "a.log").write_bytes(b"l" * 100)


def test_all_that_is_on_disk_is_counted_once_by_what_it_is(depot: Depot, tmp_path: Path) -> None:
    assert all(kind.bytes == 0 for kind in usage(depot))
    fill(depot, tmp_path)
    kinds = {kind.kind: kind for kind in usage(depot)}
    assert sum(kind.bytes for kind in kinds.values()) == bytes_below(depot.root)
    assert kinds["libraries"].count == 1
    assert kinds["objects"].bytes >= 1000
    assert (kinds["compilers"].count, kinds["compilers"].bytes) == (1, 5000)
    assert (kinds["logs"].count, kinds["logs"].bytes) == (1, 100)
    document = json.loads(flashdepot("depot", "usage", "--json", depot=depot).stdout)
    assert document["bytes"] == bytes_below(depot.root)
    page = flashdepot("depot", "usage", depot=depot)
    assert "5.0 kB" in page.stdout
    assert "today" in page.stdout
    assert "depot clean" in page.stderr


def test_the_list_of_libraries_has_a_head_sizes_and_when_they_were_used(depot: Depot, tmp_path: Path) -> None:
    manifest = store_library(depot, tmp_path)
    make_depot_older(depot.root, hours=49)
    done = flashdepot("depot", "ls", depot=depot)
    head, row = done.stdout.splitlines()
    assert {"library", "GPUs", "size", "kernels"} <= set(head.split())
    assert row.startswith(manifest.recipe_key[:12])
    assert "2 days ago" in row
    assert "1 libraries" in done.stderr


def test_a_library_with_kernels_that_are_unproven_on_some_gpus_says_so_wherever_it_is_shown(
    depot: Depot, tmp_path: Path
) -> None:
    manifest = store_library(depot, tmp_path, unproven={"fa4": parse_list("100,120")})
    assert depot.artifacts.load(manifest.recipe_key) == manifest
    assert "(untested: fa4 on 10.0, 12.0)" in flashdepot("depot", "ls", depot=depot).stdout
    shown = flashdepot("depot", "show", manifest.recipe_key[:8], depot=depot).stdout
    assert "untested       fa4 on 10.0, 12.0\n" in shown
    document = json.loads(flashdepot("depot", "show", manifest.recipe_key[:8], "--json", depot=depot).stdout)
    assert document["unproven"] == {"fa4": ["100", "120"]}
    for wrong in (["100"], {"fa4": "100"}, {"fa4": ["ten"]}):
        with pytest.raises(ValueError, match="unproven"):
            Manifest.from_json({**document, "unproven": wrong})


def test_clean_frees_at_once_what_no_library_needs_and_all_frees_those_too(depot: Depot, tmp_path: Path) -> None:
    fill(depot, tmp_path)
    before = bytes_below(depot.root)
    shown = flashdepot("depot", "clean", "--dry-run", depot=depot)
    assert "5.0 kB  1 of kind toolchain" in shown.stderr
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


def test_what_a_command_uses_is_not_cleaned_away(depot: Depot, tmp_path: Path) -> None:
    with depot.workspace():
        record = record_unit(depot, tmp_path, content=b"just made")
        planned = gc.plan(depot, timedelta(0), grace=0)
        assert [removal.kind for removal in planned.removals] == []
        assert depot.layout.action(record.action_key).exists()


def test_a_plan_that_forgets_a_library_frees_its_files_and_changes_nothing(depot: Depot, tmp_path: Path) -> None:
    manifest = store_library(depot, tmp_path)
    planned = gc.plan(depot, timedelta(0), grace=0, forget=frozenset([manifest.recipe_key]))
    assert {"manifest", "blob"} <= {removal.kind for removal in planned.removals}
    assert depot.artifacts.load(manifest.recipe_key) is not None
    gc.run(depot, planned)
    assert Depot(depot.root).artifacts.load(manifest.recipe_key) is None
    assert not any(os.scandir(depot.root / "artifacts"))
