import errno
import os
from pathlib import Path

import pytest

from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError, MissingToolError, UsageError
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_json
from flashdepot.model.manifest import Manifest, ManifestFile
from support.depots import LIBRARY_FILES, LINK, flip_bit, store_library
from support.own_world import makes_links
from support.tools import contents, unchanged

HEADER = "include/flash_attention.h"
LINKS = [LINK.path] if makes_links() else []


@pytest.fixture
def manifest(depot: Depot, tmp_path: Path) -> Manifest:
    return store_library(depot, tmp_path / "sources")


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("materialised", [True, False])
def test_a_library_is_copied_into_a_new_or_empty_folder(depot, manifest, tmp_path, exists, materialised):
    out = tmp_path / "a" / "out"
    if exists:
        out.mkdir(parents=True)
    if materialised:
        depot.libraries.materialise(manifest)
    assert depot.export(manifest, out) == out.resolve()
    assert set(contents(out)) == {*LIBRARY_FILES, "manifest.json", *LINKS}
    assert all((out / link).is_symlink() for link in LINKS)
    header = out / HEADER
    assert header.stat().st_nlink == 1, "the user may edit it without harm to the depot"
    assert header.stat().st_mode & 0o777 == 0o644 or os.name == "nt"
    assert Manifest.from_json(read_json(out / "manifest.json")) == manifest


def test_an_earlier_export_is_replaced_and_what_the_user_added_stays(depot, manifest, tmp_path):
    out = tmp_path / "out"
    old_file = tmp_path / "old.h"
    old_file.write_text("old")
    gone = ManifestFile("share/gone/old.h", sha256_file(old_file), 3)
    old = store_library(depot, tmp_path / "sources", name="old", files=())
    old = Manifest.from_json(old.to_json() | {"files": [gone.to_json()]})
    depot.artifacts.store(old, {gone.path: old_file})
    depot.export(old, out)
    (out / "include").mkdir()
    (out / "include" / "mine.h").write_text("mine")
    depot.export(manifest, out)
    assert set(contents(out)) == {
        *LIBRARY_FILES, "manifest.json", *LINKS, "include/mine.h",
    }  # fmt: skip
    assert not (out / "share").exists()


@pytest.mark.parametrize(
    "held",
    [
        {"thesis.tex": "years of work"},
        {"manifest.json": '{"kind": "npm package"}', "x": ""},
        {"manifest.json": "not json"},
    ],
)
def test_a_folder_that_holds_something_else_is_refused_and_untouched(depot, manifest, tmp_path, held):
    out = tmp_path / "out"
    out.mkdir()
    for name, text in held.items():
        (out / name).write_text(text)
    with unchanged(out), pytest.raises(UsageError, match="not a library that flashdepot wrote") as caught:
        depot.export(manifest, out)
    assert "--out DIR" in caught.value.hint


def test_a_file_in_place_of_the_folder_is_refused(depot, manifest, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        depot.export(manifest, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_of_the_user_in_place_of_a_library_file_is_refused(depot, manifest, tmp_path):
    out = depot.export(manifest, tmp_path / "out")
    (out / HEADER).unlink()
    (out / HEADER).mkdir()
    with pytest.raises(UsageError, match="where a file of the"):
        depot.export(manifest, out)
    assert (out / "manifest.json").exists()


def test_a_damaged_blob_leaves_the_earlier_export_as_it_was(depot, manifest, tmp_path):
    new = store_library(depot, tmp_path / "sources", name="new")
    out = depot.export(manifest, tmp_path / "out")
    flip_bit(depot.layout.blob(new.files[-1].digest))
    for destination in (out, tmp_path / "other"):
        with unchanged(out), pytest.raises(IntegrityError):
            Depot(depot.root).export(new, destination)
    assert not (tmp_path / "other").exists()


def test_a_full_disk_leaves_the_earlier_export_as_it_was(depot, manifest, small_disk, tmp_path):
    out = depot.export(manifest, small_disk / "out")
    big = tmp_path / "big.a"
    big.write_bytes(b"x" * 3_000_000)
    file = ManifestFile("lib/big.a", sha256_file(big), 3_000_000)
    new = Manifest.from_json(manifest.to_json() | {"files": [file.to_json()]})
    depot.artifacts.store(new, {file.path: big})
    with unchanged(out), pytest.raises(MissingToolError, match="full") as caught:
        depot.export(new, out)
    assert "--out DIR" in caught.value.hint


def test_a_mount_point_and_the_current_folder_are_written_into(depot, manifest, small_disk, monkeypatch):
    monkeypatch.chdir(small_disk)
    depot.export(manifest, Path())
    assert (small_disk / "manifest.json").exists()
    assert Path("manifest.json").exists()


def test_a_hostile_manifest_in_the_folder_cannot_remove_files_outside_it(depot, manifest, tmp_path):
    out = depot.export(manifest, tmp_path / "out")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    text = (out / "manifest.json").read_text().replace(HEADER, "../victim")
    (out / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match="not a library that flashdepot wrote"):
        depot.export(manifest, out)
    assert victim.read_text() == "precious"


def test_a_destination_that_may_not_be_written_is_named(depot, manifest, tmp_path, monkeypatch):
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(MissingToolError, match="out") as caught:
        depot.export(manifest, tmp_path / "out")
    assert "--out DIR" in caught.value.hint
