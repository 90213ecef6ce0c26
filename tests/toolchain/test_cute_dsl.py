from __future__ import annotations

import hashlib
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flashdepot.errors import IncompatibleError, NetworkError
from flashdepot.kernels.fa4.units import PYTHONS
from flashdepot.model.target import Platform
from flashdepot.net.fetch import fetch
from flashdepot.toolchain import cute_dsl

LINUX = Platform("linux", "x86_64")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small wheels in place of NVIDIA's, and a fetch that copies them."""
    folder = tmp_path / "index"
    folder.mkdir()
    rows = []
    for project, python, platform in (
        ("core", "any", "any"),
        ("libs", "cp311", "linux-x86_64"),
        ("libs", "cp312", "linux-x86_64"),
    ):
        name = f"{project}-{python}.whl"
        with zipfile.ZipFile(folder / name, "w") as file:
            file.writestr(f"packages/{project}.py", python)
            file.writestr(f"packages/tests/{project}.py", "")
            file.writestr(f"{project}.dist-info/METADATA", "")
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        rows.append(
            {
                "project": project,
                "version": "1",
                "filename": name,
                "sha256": digest,
                "python": python,
                "platform": platform,
            }
        )

    def fetch(_project: str, filename: str, _sha256: str, destination: Path, **_: Any) -> Path:
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes((folder / filename).read_bytes())
        return destination

    monkeypatch.setattr(cute_dsl, "_data", lambda: {"cute_dsl": "4.8.1", "wheel": rows})
    monkeypatch.setattr(cute_dsl, "fetch", fetch)
    return folder


def test_the_wheels_for_a_python_become_one_folder_of_packages(index: Path, tmp_path: Path) -> None:
    told: list[str] = []
    root = cute_dsl.provide(LINUX, "cp312", tmp_path / "toolchains", told.append)
    assert told == ["core-any.whl", "libs-cp312.whl"]
    assert sorted(p.name for p in root.rglob("*.py")) == ["core.py", "libs.py"]
    assert (root / "packages/libs.py").read_text() == "cp312"
    assert not list(root.rglob("METADATA"))
    assert cute_dsl.provide(LINUX, "cp312", tmp_path / "toolchains", told.append) == root
    assert len(told) == 2


def test_another_python_has_a_folder_of_its_own_and_the_same_identity(index: Path, tmp_path: Path) -> None:
    before = cute_dsl.identity()
    roots = {cute_dsl.provide(LINUX, python, tmp_path, lambda _: None) for python in ("cp311", "cp312")}
    assert len(roots) == 2
    assert cute_dsl.identity() == before


def test_another_version_in_the_depot_is_not_taken(index: Path, tmp_path: Path) -> None:
    another = tmp_path / "toolchains/cute-dsl-4.7.0-cp312-0123456789ab"
    (another / "packages").mkdir(parents=True)
    root = cute_dsl.provide(LINUX, "cp312", another.parent, lambda _: None)
    assert root.name.startswith("cute-dsl-4.8.1-cp312-")
    assert (another / "packages").is_dir()


def test_with_another_version_alone_and_no_network_the_missing_one_is_named_and_how_to_get_it(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cute-dsl-4.7.0-cp312-0123456789ab").mkdir()
    monkeypatch.setattr(cute_dsl, "fetch", fetch)
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError, match=r"core-any\.whl needs the network, and --offline") as error:
        cute_dsl.provide(LINUX, "cp312", tmp_path, lambda _: None)
    assert "Run it once with the network" in str(error.value.hint)
    assert sorted(p.name for p in tmp_path.glob("cute-dsl-*")) == ["cute-dsl-4.7.0-cp312-0123456789ab"]


@pytest.mark.parametrize(
    ("platform", "python", "said"),
    [
        (Platform("windows", "x86_64"), "cp312", "linux-x86_64, and this is windows-x86_64"),
        (LINUX, "pypy311", "pypy311"),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_what_can(
    index: Path, tmp_path: Path, platform: Platform, python: str, said: str
) -> None:
    with pytest.raises(IncompatibleError, match=said) as error:
        cute_dsl.provide(platform, python, tmp_path, lambda _: None)
    assert "--families fa2" in str(error.value.hint)


def test_every_project_is_pinned_once_for_each_python_and_platform() -> None:
    rows = cute_dsl._data()["wheel"]
    projects = {row["project"] for row in rows}
    assert "torch" not in projects
    for platform in ("linux-x86_64", "linux-aarch64"):
        for python in ("cp311", "cp312", "cp313", "cp314"):
            chosen = cute_dsl._wheels(Platform.parse(platform), python)
            assert Counter(row["project"] for row in chosen) == Counter(projects)
    pinned = {row["python"] for row in rows} - {"any"}
    assert pinned == {f"cp{major}{minor}" for major, minor in PYTHONS}, "kernels/fa4/targets.py names others"
