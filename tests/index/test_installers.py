"""pip and uv really install from our index, on a server of this machine."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flashdepot.binary.wheel import read_wheel
from flashdepot.files.documents import read_json, read_toml
from flashdepot.host.probe import this_platform
from flashdepot.model.index_record import RECORD_NAME
from index.conftest import serve_site
from support.wheels import WheelMaker

LATER = 1_790_100_000
UV = shutil.which("uv")
PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-cache-dir")
INSTALLERS = [
    pytest.param((*PIP, "install"), id="pip"),
    pytest.param((str(UV), "pip", "install", "--no-cache"), id="uv", marks=pytest.mark.skipif(not UV, reason="no uv")),
]
needs_uv = pytest.mark.skipif(not UV, reason="there is no uv")


@pytest.fixture
def maker(tmp_path: Path) -> WheelMaker:
    return WheelMaker(tmp_path / "made", platform=str(this_platform()))


def run(*command: str, cwd: Path, code: int = 0, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def installed(folder: Path) -> str:
    """The version and the shared library of what was installed."""
    (info,) = folder.glob("flash_attn-*.dist-info")
    (library,) = folder.glob("flash_attn_2_cuda/lib/*flashattention.*")
    return f"{info.name.split('-')[1].removesuffix('.dist')} {library.read_bytes()[:40].decode().split(' ')[0]}"


@pytest.mark.parametrize("command", INSTALLERS)
@pytest.mark.parametrize("subindex", ["simple", "cu130-full-hd64-sm90"])
def test_the_one_wheel_of_an_address_is_taken(command, subindex, maker, publish, address, tmp_path) -> None:
    publish(*(maker.make(sass).path for sass in ("80,90,120", "90", "120")), maker.make("90", profile="quick").path)
    run(*command, "--no-deps", "--target", "to", "--index-url", f"{address}{subindex}/", "flash-attn", cwd=tmp_path)
    expected = {"simple": "sm80.sm90.sm120 80,90,120", "cu130-full-hd64-sm90": "sm90 90"}[subindex]
    assert installed(tmp_path / "to") == f"9.9.9+cu130.full.hd64.{expected}"


@pytest.mark.parametrize("command", INSTALLERS)
def test_a_version_that_is_pinned_is_taken_though_it_is_offered_to_nobody_else(
    command, maker, publish, address, tmp_path
) -> None:
    publish(maker.make("80,90").path, maker.make("90").path)
    pinned = "flash-attn==9.9.9+cu130.full.hd64.sm90"
    run(*command, "--no-deps", "--target", "to", "--index-url", f"{address}simple/", pinned, cwd=tmp_path)
    assert installed(tmp_path / "to") == "9.9.9+cu130.full.hd64.sm90 90"


@pytest.mark.parametrize("command", INSTALLERS)
def test_what_is_locked_by_hash_is_installed_and_other_bytes_are_refused(
    command, maker, publish, address, public, tmp_path
) -> None:
    wheel = maker.make()
    publish(wheel.path)
    (tmp_path / "requirements.txt").write_text(f"flash-attn=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    words = ("--no-deps", "--require-hashes", "-r", "requirements.txt", "--index-url", f"{address}simple/")
    run(*command, *words, "--target", "to", cwd=tmp_path)
    assert installed(tmp_path / "to").startswith(wheel.version)
    with zipfile.ZipFile(public / "files" / wheel.path.name, "a") as archive:
        archive.comment = b"changed on the server"
    said = run(*command, *words, "--target", "other", cwd=tmp_path, code=1)
    assert "hash" in said.lower()
    assert not (tmp_path / "other" / "flash_attn").exists()


@pytest.mark.parametrize("command", INSTALLERS)
def test_the_address_of_a_file_with_its_hash_is_one_command(command, maker, publish, address, tmp_path) -> None:
    wheel = maker.make()
    publish(wheel.path)
    place = f"{address}files/{quote(wheel.path.name)}"
    run(*command, "--no-deps", "--target", "to", f"flash-attn @ {place}#sha256={wheel.sha256}", cwd=tmp_path)
    run(*command, "--no-deps", "--target", "no", f"flash-attn @ {place}#sha256={'0' * 64}", cwd=tmp_path, code=1)
    assert installed(tmp_path / "to").startswith(wheel.version)


def test_pip_reads_the_metadata_without_the_wheel(maker, publish, address, public, tmp_path) -> None:
    wheel = maker.make()
    publish(wheel.path)
    (public / "files" / wheel.path.name).unlink()
    words = ("download", "--no-deps", "--dry-run", "--ignore-installed", "--report", "-", "--quiet")
    said = run(*PIP, "install", *words[1:], "--index-url", f"{address}simple/", "flash-attn", cwd=tmp_path)
    assert wheel.version in said


def make_dependencies(folder: Path) -> None:
    """An index with the packages that a flash-attn needs."""
    for name, version in (("torch", "2.9.1"), ("einops", "0.8.1")):
        place = folder / name
        place.mkdir(parents=True)
        file, info = f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
        with zipfile.ZipFile(place / file, "w") as archive:
            archive.writestr(f"{name}.py", "")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
        (place / "index.html").write_text(f'<!DOCTYPE html><a href="{file}">{file}</a>')


PROJECT = """\
[project]
name = "attention"
version = "1"
requires-python = ">=3.10"
dependencies = ["flash-attn"]

[tool.uv.sources]
flash-attn = {{ index = "flashdepot" }}

[[tool.uv.index]]
name = "flashdepot"
url = "{address}simple/"
explicit = true

[[tool.uv.index]]
name = "others"
url = "{others}"
default = true
"""


@pytest.fixture
def project(address: str, public: Path, tmp_path: Path) -> Path:
    """A uv project that takes flash-attn from our index and the rest from another."""
    make_dependencies(public.parent / "others")
    folder = tmp_path / "project"
    folder.mkdir()
    others = address.replace(f"/{public.name}/", "/others/")
    (folder / "pyproject.toml").write_text(PROJECT.format(address=address, others=others))
    return folder


@needs_uv
def test_uv_locks_the_hash_and_syncs_it(maker, publish, project) -> None:
    linux, windows = maker.make(), maker.make(platform="windows-x86_64")
    publish(linux.path, windows.path)
    run(str(UV), "lock", "--no-cache", cwd=project)
    lock = read_toml(project / "uv.lock")
    (package,) = (package for package in lock["package"] if package["name"] == "flash-attn")
    assert package["version"] == linux.version == windows.version
    assert {wheel["hash"] for wheel in package["wheels"]} == {f"sha256:{w.sha256}" for w in (linux, windows)}
    assert {wheel["size"] for wheel in package["wheels"]} == {linux.size, windows.size}
    assert all(wheel["upload-time"] == "2026-09-21T14:13:20Z" for wheel in package["wheels"])
    run(str(UV), "sync", "--no-cache", "--locked", "--python", sys.executable, cwd=project)
    (site,) = (project / ".venv").rglob("site-packages")
    assert installed(site) == f"{linux.version} 80,90"


@needs_uv
def test_a_lock_holds_when_a_better_wheel_is_published(maker, publish, project) -> None:
    first = maker.make()
    publish(first.path)
    run(str(UV), "lock", "--no-cache", cwd=project)
    publish(maker.make("80,90,120").path, when=LATER)
    run(str(UV), "sync", "--no-cache", "--locked", "--python", sys.executable, cwd=project)
    assert first.version in (project / "uv.lock").read_text()


@needs_uv
@pytest.mark.parametrize(
    ("before", "taken"), [("2026-09-22T00:00:00Z", "sm80.sm90"), ("2026-09-25T00:00:00Z", "sm120")]
)
def test_exclude_newer_takes_what_was_there_then(maker, publish, address, tmp_path, before, taken) -> None:
    publish(maker.make().path)
    publish(maker.make("80,90,120").path, when=LATER)
    words = ("pip", "install", "--no-cache", "--no-deps", "--target", "to", "--exclude-newer", before)
    said = run(str(UV), *words, "--index-url", f"{address}simple/", "flash-attn", cwd=tmp_path, code=0)
    assert f"{taken}\n" in said


@pytest.fixture(scope="module")
def site(flashdepot: Any, quick_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of all that the real depot has."""
    return Path(flashdepot("index", str(tmp_path_factory.mktemp("real") / "public"))["path"])


@pytest.mark.nvcc
@pytest.mark.parametrize("command", INSTALLERS)
def test_what_was_compiled_here_is_installed_by_hash_from_the_index(command, site, quick_library, tmp_path) -> None:
    manifest = read_json(quick_library / "manifest.json")
    (row,) = (row for row in read_json(site / RECORD_NAME)["wheels"] if row["recipe_key"] == manifest["recipe_key"])
    assert read_wheel(site / "files" / row["filename"], lambda *_: None).problems == ()
    (tmp_path / "lock.txt").write_text(f"flash-attn=={row['version']} --hash=sha256:{row['sha256']}\n")
    with serve_site(site) as url:
        words = ["--no-deps", "--target", "to", "--index-url", f"{url}simple/", "--require-hashes", "-r", "lock.txt"]
        run(*command, *words, cwd=tmp_path)
    ours = {Path(file["path"]).name: file["digest"] for file in manifest["files"] if "digest" in file}
    library = tmp_path / "to" / "flash_attn_2_cuda" / "lib" / "libflashattention.so.1"
    assert hashlib.sha256(library.read_bytes()).hexdigest() == ours[library.name]
    assert (tmp_path / "to" / "flash_attn" / "flash_attn_interface.py").is_file()
