"""The crate that ``link cargo`` writes, built by a real cargo, offline."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.programs import need_of_library, ours
from support.tools import flashdepot_here, tool

pytestmark = pytest.mark.nvcc

Cargo = Callable[..., subprocess.CompletedProcess[str]]


def link_cargo(folder: Path, library: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return flashdepot_here("link", "cargo", folder, "--library", library, *options)


@pytest.fixture(scope="module")
def crate(moved_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crate that was moved after it was written."""
    written = tmp_path_factory.mktemp("written") / "flashattention-sys"
    done = link_cargo(written, moved_library)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{written}\n"
    place = tmp_path_factory.mktemp("moved crate") / "flashattention-sys"
    return Path(shutil.move(written, place))


@pytest.fixture
def cargo(sh: Callable[..., subprocess.CompletedProcess[str]]) -> Cargo:
    """Run cargo in a folder, with these variables."""
    program = tool("cargo")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FLASHDEPOT_L")}

    return lambda folder, *arguments, **variables: sh(
        program, *arguments, "--offline", cwd=folder, env={**clean, **variables}
    )


@pytest.mark.parametrize("kind", ["static", "shared"])
def test_its_own_tests_pass_with_either_library(crate, cargo, kind) -> None:
    done = cargo(crate, "test", "--tests", FLASHDEPOT_LINK=kind)
    assert done.returncode == 0, done.stdout
    assert "test the_library_knows_the_abi_of_the_bindings ... ok" in done.stdout
    assert "warning" not in done.stdout
    newest = max(crate.glob("target/debug/deps/contents-*[!.d]"), key=lambda path: path.stat().st_mtime)
    assert ours(newest) == need_of_library(kind)


def test_a_feature_asks_for_the_shared_library_too(crate, cargo) -> None:
    done = cargo(crate, "build", "-vv", "--features", "shared")
    assert "[flashattention-sys 1.0.0] cargo:kind=shared" in done.stdout, done.stdout


def test_another_library_is_taken_from_the_environment(crate, cargo, damageable_library) -> None:
    done = cargo(crate, "build", "-vv", FLASHDEPOT_LIB_DIR=str(damageable_library))
    assert f"cargo:root={damageable_library}" in done.stdout, done.stdout


def test_the_licences_and_the_manifest_travel_with_it(crate, moved_library) -> None:
    inside = crate / "library" / "linux-x86_64"
    assert (inside / "manifest.json").read_bytes() == (moved_library / "manifest.json").read_bytes()
    assert {p.parent.name for p in (inside / "share/licenses").rglob("*") if p.is_file()} >= {
        "flash-attention",
        "cutlass",
    }


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"FLASHDEPOT_LINK": "both"}, "FLASHDEPOT_LINK is 'both': expected static or shared"),
        ({"FLASHDEPOT_LIB_DIR": "/nowhere"}, "/nowhere holds no libflashattention"),
    ],
)
def test_a_wrong_variable_is_named(crate, cargo, variables, said) -> None:
    done = cargo(crate, "build", **variables)
    assert done.returncode != 0
    assert said in done.stdout


def test_a_pointer_and_an_empty_file_are_named_before_the_linker_sees_them(crate, cargo, damageable_library) -> None:
    archive = damageable_library / "lib/static/libflashattention.a"
    archive.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    done = cargo(crate, "build", FLASHDEPOT_LIB_DIR=str(damageable_library))
    assert "libflashattention.a is a Git LFS pointer" in done.stdout
    archive.write_bytes(b"")
    assert "is empty" in cargo(crate, "build", FLASHDEPOT_LIB_DIR=str(damageable_library)).stdout


def test_writing_again_replaces_what_was_written_and_keeps_the_rest(moved_library, tmp_path) -> None:
    folder = tmp_path / "sys"
    assert link_cargo(folder, moved_library).returncode == 0
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    (folder / "NOTES").write_text("mine")
    (folder / "src/bindings.rs").unlink()
    document = json.loads(link_cargo(folder, moved_library, "--json").stdout)
    assert document["path"] == str(folder)
    assert {p: p.read_bytes() for p in before} == before
    assert (folder / "NOTES").read_text() == "mine"


def test_a_damaged_library_is_not_put_into_a_crate(damageable_library, tmp_path) -> None:
    with (damageable_library / "lib/static/libflashattention.a").open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    done = link_cargo(tmp_path / "sys", damageable_library)
    assert done.returncode == 6
    assert "libflashattention.a" in done.stderr


def test_the_crate_holds_a_library_a_platform(damageable_library, tmp_path, cargo) -> None:
    crate = tmp_path / "sys"
    assert link_cargo(crate, damageable_library).returncode == 0
    manifest = damageable_library / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"platform": "linux-x86_64"', '"platform": "windows-x86_64"'))
    assert link_cargo(crate, damageable_library).returncode == 0
    assert sorted(path.name for path in (crate / "library").iterdir()) == ["linux-x86_64", "windows-x86_64"]
    assert "/library/*/lib/static/* filter=lfs" in (crate / ".gitattributes").read_text()
    (crate / "library/linux-x86_64").rename(tmp_path / "elsewhere")
    done = cargo(crate, "build")
    assert "has no library for linux-x86_64. Add one: flashdepot link cargo DIR --target linux-x86_64" in done.stdout
