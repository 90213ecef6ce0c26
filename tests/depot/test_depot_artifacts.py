import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.depot.verify import verify
from flashdepot.errors import GET_NEWER, IntegrityError, MissingToolError
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_json
from flashdepot.model.manifest import Manifest, ManifestFile
from support.depots import (
    LIBRARY_FILES,
    LINK,
    flip_and_keep_times,
    flip_bit,
    make_depot_older,
    make_manifest,
    make_request,
    make_selection,
    make_unit,
    put_bytes,
    rewrite_record,
    store_library,
    truncate,
)
from support.own_world import makes_links

SHARED = "lib/shared/libflashattention.so.1"


def digest_in(manifest: Manifest, path: str) -> str:
    return next(f.digest for f in manifest.files if f.path == path)


def assert_whole(folder: Path, manifest: Manifest, name: str = "one") -> None:
    for path, content in LIBRARY_FILES.items():
        assert (folder / path).read_bytes() == content + name.encode()
    assert not makes_links() or (folder / LINK.path).readlink() == Path(LINK.link)
    assert Manifest.from_json(read_json(folder / "manifest.json")) == manifest


def test_a_stored_library_is_found_and_put_together(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    again = Depot(depot.root)
    choice = again.find(make_request())
    assert choice.taken == manifest
    assert again.artifacts.load(manifest.recipe_key) == manifest
    folder = again.libraries.materialise(manifest)
    assert folder == depot.root / "libraries" / manifest.recipe_key[:16]
    assert_whole(folder, manifest)
    assert (folder / SHARED).samefile(depot.layout.blob(digest_in(manifest, SHARED))), "bytes are kept once"


@pytest.mark.skipif(not makes_links(), reason="no links here")
def test_a_link_in_place_of_a_librarys_folder_is_replaced_and_nothing_is_written_where_it_leads(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = depot.layout.library(manifest.recipe_key)
    folder.parent.mkdir()
    folder.symlink_to(elsewhere)
    assert depot.libraries.materialise(manifest) == folder
    assert not folder.is_symlink()
    assert_whole(folder, manifest)
    assert list(elsewhere.iterdir()) == []


def test_a_recipe_whose_library_is_damaged_is_not_there(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    assert depot.load_intact(manifest.recipe_key) == manifest
    truncate(depot.layout.blob(digest_in(manifest, SHARED)))
    assert Depot(depot.root).load_intact(manifest.recipe_key) is None


def test_a_manifest_that_states_another_size_of_a_file_is_not_taken(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    depot.artifacts.adopt(manifest)
    files = tuple(replace(file, size=file.size + 1) if file.path == SHARED else file for file in manifest.files)
    with pytest.raises(IntegrityError, match=f"{SHARED} does not have the .* bytes"):
        depot.artifacts.adopt(replace(manifest, files=files))


def test_a_hit_reads_each_file_of_the_library_once(depot, tmp_path, monkeypatch):
    manifest = store_library(depot, tmp_path)
    folder = depot.libraries.materialise(manifest)
    read: list[Path] = []
    monkeypatch.setattr("flashdepot.files.folders._SETTLED", -1.0)
    monkeypatch.setattr("flashdepot.files.folders.sha256_file", lambda path: read.append(path) or sha256_file(path))
    again = Depot(depot.root)
    assert again.find(make_request()).taken == manifest
    assert again.libraries.materialise(manifest) == folder
    expected = sorted([*LIBRARY_FILES, "manifest.json"])
    found = sorted(path.relative_to(folder).as_posix() for path in read)
    assert found == expected or (os.name == "nt" and {*found} == {*expected}), (
        "Windows tells no time of a file's change"
    )


def test_a_file_that_was_written_this_moment_is_read_again(depot, tmp_path):
    manifest = store_library(depot, tmp_path)
    folder = depot.libraries.materialise(manifest)
    again = Depot(depot.root)
    assert again.find(make_request()).taken == manifest
    flip_and_keep_times(folder / SHARED, 5, 0)
    with pytest.raises(IntegrityError):
        again.libraries.materialise(manifest)


@pytest.mark.parametrize("plant", ["include/cuda_fp16.h", "include", "lib/shared/libflashattention.so.1"])
def test_what_was_planted_in_a_library_is_gone_when_it_is_handed_out(depot, tmp_path, plant):
    manifest = store_library(depot, tmp_path)
    folder = depot.libraries.materialise(manifest)
    elsewhere = tmp_path / "elsewhere"
    path = folder / plant
    if path.exists():
        path.rename(elsewhere)  # with the right bytes, so that only the link is wrong
    else:
        elsewhere.write_text("planted")
    path.symlink_to(elsewhere)
    assert Depot(depot.root).libraries.materialise(manifest) == folder
    assert_whole(folder, manifest)
    assert not any(p.is_symlink() for p in folder.rglob("*") if p.name != "libflashattention.so")
    assert not (folder / "include/cuda_fp16.h").exists()
    assert elsewhere.exists(), "what it led to is left untouched"


def test_a_library_gives_back_blobs_that_the_depot_lost(depot, problems, tmp_path):
    manifest = store_library(depot, tmp_path)
    depot.libraries.materialise(manifest)
    depot.layout.blob(digest_in(manifest, SHARED)).unlink()
    fresh = Depot(depot.root, problems.append)
    assert fresh.find(make_request()).taken == manifest
    fresh.libraries.materialise(manifest)
    assert fresh.blobs.find(digest_in(manifest, SHARED))
    assert problems == []


@pytest.mark.parametrize("damage", [flip_bit, truncate, Path.unlink])
def test_a_library_damaged_in_its_folder_is_fixed_from_the_blobs(depot, tmp_path, monkeypatch, damage):
    manifest = store_library(depot, tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(os, "link", refuse)
    folder = depot.libraries.materialise(manifest)
    damage(folder / SHARED)
    (folder / LINK.path).unlink(missing_ok=not makes_links())
    (folder / "include/old.h").write_text("of an earlier build")
    fresh = Depot(depot.root)
    assert fresh.libraries.materialise(manifest) == folder
    assert_whole(folder, manifest)
    assert not (folder / "include/old.h").exists()


def test_writing_into_a_library_that_shares_its_bytes_with_a_blob_is_noticed(depot, problems, tmp_path):
    manifest = store_library(depot, tmp_path)
    flip_bit(depot.libraries.materialise(manifest) / SHARED)
    fresh = Depot(depot.root, problems.append)
    choice = fresh.find(make_request())
    assert choice.taken is None
    assert choice.rejected == ((manifest, ("a file of it is damaged or missing",)),)
    assert problems
    with pytest.raises(IntegrityError):
        fresh.libraries.materialise(manifest)
    store_library(fresh, tmp_path)
    assert_whole(fresh.libraries.materialise(manifest), manifest)


@pytest.mark.parametrize("damage", [flip_bit, truncate, Path.unlink])
def test_a_library_with_a_damaged_blob_is_skipped_for_an_older_one(depot, tmp_path, damage):
    older = store_library(depot, tmp_path, name="older")
    newer = store_library(depot, tmp_path, name="newer")
    assert depot.find(make_request()).taken == newer
    damage(depot.layout.blob(digest_in(newer, SHARED)))
    choice = Depot(depot.root).find(make_request())
    assert choice.taken == older
    assert choice.rejected == ((newer, ("a file of it is damaged or missing",)),)


def test_an_artifact_of_another_kind_does_not_serve_as_a_library(depot, tmp_path):
    store_library(depot, tmp_path, kind="wheel")
    assert depot.find(make_request()) == type(depot.find(make_request()))(None, ())


@pytest.mark.parametrize(
    "content", ["", '{"schema": 1', "[]", '{"schema": 1}', '{"schema": 99}', "[" * 100_000, "\0" * 5000]
)
def test_a_damaged_manifest_is_reported_and_left_out(depot, problems, tmp_path, content):
    good = store_library(depot, tmp_path, name="good")
    bad = store_library(depot, tmp_path, name="bad")
    depot.layout.artifact(bad.recipe_key).write_text(content)
    assert list(depot.artifacts.manifests()) == [good]
    assert str(depot.layout.artifact(bad.recipe_key)) in problems[0]


def test_what_another_release_wrote_is_not_called_damaged(depot, problems, tmp_path):
    later = store_library(depot, tmp_path, name="later")
    rewrite_record(depot.layout.artifact(later.recipe_key), lambda data: {**data, "schema": 99})
    assert list(depot.artifacts.manifests()) == []
    (problem,) = problems
    assert "was written by another release of flashdepot" in problem
    assert "damaged" not in problem


def test_a_word_of_a_newer_release_is_reported_as_that_and_its_library_is_kept(depot, problems, tmp_path):
    later = store_library(depot, tmp_path)
    path = depot.layout.artifact(later.recipe_key)
    rewrite_record(path, lambda data: json.loads(json.dumps(data).replace('"dtype": "bf16"', '"dtype": "e2m1"')))
    assert list(depot.artifacts.manifests()) == []
    assert "was written by a newer flashdepot: selection.units[0].dtype is 'e2m1'" in problems[0]
    assert GET_NEWER in problems[0]
    assert "damaged" not in problems[0]
    assert depot.load_intact(later.recipe_key) is None
    report = verify(depot)
    assert (report.skipped, report.problems) == (1, ())
    assert path.is_file()


@pytest.mark.parametrize("hostile", ["../" * 21 + "x", "/etc/passwd", "A" * 64])
def test_a_manifest_cannot_name_a_file_outside_the_blobs(depot, problems, tmp_path, hostile):
    manifest = store_library(depot, tmp_path)
    path = depot.layout.artifact(manifest.recipe_key)
    rewrite_record(path, lambda data: json.loads(json.dumps(data).replace(digest_in(manifest, SHARED), hostile)))
    assert list(depot.artifacts.manifests()) == []
    assert problems


def test_storing_a_file_that_changed_since_its_manifest_was_made_is_refused(depot, tmp_path):
    source = tmp_path / "x.a"
    source.write_bytes(b"changed")
    manifest = make_manifest(files=(ManifestFile("lib/x.a", "b" * 64, 7),))
    with pytest.raises(IntegrityError, match="changed after its manifest was made"):
        depot.artifacts.store(manifest, {"lib/x.a": source})
    assert list(depot.artifacts.manifests()) == []


def test_a_library_built_again_for_the_same_recipe_replaces_the_old_one_in_its_folder(depot, tmp_path):
    first = store_library(depot, tmp_path, name="first")
    depot.libraries.materialise(first)
    second = store_library(depot, tmp_path, name="second", recipe_key=first.recipe_key)
    assert_whole(depot.libraries.materialise(second), second, "second")


def test_the_list_shows_the_last_used_first(depot, tmp_path):
    old = store_library(depot, tmp_path, name="old")
    new = store_library(depot, tmp_path, name="new", selection=make_selection(make_unit(head_dim=128)))
    make_depot_older(depot.root, hours=48)
    depot.find(make_request(selection=new.selection))
    listed = depot.artifacts.by_last_use()
    assert [a.manifest for a in listed] == [new, old]
    assert (listed[0].last_used - listed[1].last_used).total_seconds() > 47 * 3600


def test_a_read_only_depot_serves_a_library_that_is_put_together(small_disk, make_read_only, tmp_path):
    manifest = store_library(Depot(small_disk / "depot"), tmp_path)
    folder = Depot(small_disk / "depot").libraries.materialise(manifest)
    make_depot_older(small_disk / "depot", hours=100)
    make_read_only()
    depot = Depot(small_disk / "depot")
    assert depot.find(make_request()).taken == manifest
    assert depot.libraries.materialise(manifest) == folder
    assert_whole(depot.export(manifest, tmp_path / "out"), manifest)


def test_a_read_only_depot_refuses_what_must_be_written_with_plain_words(small_disk, make_read_only, tmp_path):
    manifest = store_library(Depot(small_disk / "depot"), tmp_path)
    make_read_only()
    depot = Depot(small_disk / "depot")
    attempts: list[Callable[[], object]] = [
        lambda: depot.libraries.materialise(manifest),
        lambda: put_bytes(depot, b"new"),
        lambda: depot.try_lock("a"),
        lambda: depot.log_path("unit", "0" * 64),
        lambda: depot.workspace().__enter__(),
    ]
    for attempt in attempts:
        with pytest.raises(MissingToolError, match=r"cannot be written: Read-only") as caught:
            attempt()
        assert "--depot DIR" in caught.value.hint
    assert_whole(depot.export(manifest, tmp_path / "out"), manifest)


def test_a_damaged_blob_in_a_read_only_depot_is_reported_and_absent(small_disk, make_read_only, tmp_path, problems):
    manifest = store_library(Depot(small_disk / "depot"), tmp_path)
    flip_bit(Depot(small_disk / "depot").layout.blob(digest_in(manifest, SHARED)))
    make_read_only()
    assert Depot(small_disk / "depot", problems.append).find(make_request()).taken is None
    assert "could not be moved away" in problems[0]
