from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.model.codec import digest_of
from flashdepot.model.target import Platform
from flashdepot.toolchain import wheels

LINUX = Platform("linux", "x86_64")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small wheels in place of NVIDIA's, and a fetch that copies them."""
    folder = tmp_path / "index"
    folder.mkdir()
    listed, held = [], {}
    for name, member in (("nvcc", "bin/nvcc"), ("runtime", "include/cuda_runtime.h")):
        with zipfile.ZipFile(folder / f"{name}.whl", "w") as file:
            file.writestr(f"nvidia/cu13/{member}", member * 1000)
            held[member] = hashlib.sha256((member * 1000).encode()).hexdigest()
            file.writestr(f"{name}.dist-info/METADATA", "not needed")
        digest = hashlib.sha256((folder / f"{name}.whl").read_bytes()).hexdigest()
        row = {"project": name, "filename": f"{name}.whl", "sha256": digest, "platform": "linux-x86_64"}
        listed.append(row)

    def fetch(_project: str, filename: str, sha256: str, destination: Path, on_progress: Any = None) -> Path:
        data = (folder / filename).read_bytes()
        if on_progress is not None:
            on_progress(len(data), len(data))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise IntegrityError(f"{filename} is not what is pinned")
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(data)
        return destination

    pinned = {"cuda": "13.0.88", "wheel": listed, "tree": {"linux-x86_64": digest_of(held)}}
    monkeypatch.setattr(wheels, "_data", lambda: pinned)
    monkeypatch.setattr("flashdepot.net.fetch.fetch", fetch)
    return folder


def test_the_wheels_become_one_toolkit_and_nothing_else_is_left(index: Path, tmp_path: Path) -> None:
    told: list[str] = []
    root = wheels.provide(LINUX, tmp_path / "toolchains", told.append)
    assert told == ["nvcc.whl", "runtime.whl"]
    assert (root / "bin/nvcc").read_text().startswith("bin/nvcc")
    assert (root / "include/cuda_runtime.h").is_file()
    assert [p.name for p in (tmp_path / "toolchains").iterdir()] == [root.name]
    assert not list(root.rglob("METADATA"))


def test_who_is_told_of_a_wheel_hears_how_far_it_is(index: Path, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int | None]] = []
    wheels.provide(
        LINUX, tmp_path / "toolchains", lambda name: lambda done, all_of_it: heard.append((name, done, all_of_it))
    )
    sizes = [(index / name).stat().st_size for name in ("nvcc.whl", "runtime.whl")]
    assert heard == [("nvcc.whl", sizes[0], sizes[0]), ("runtime.whl", sizes[1], sizes[1])]


def test_a_toolkit_that_is_there_is_not_fetched_again_and_a_damaged_one_is(index: Path, tmp_path: Path) -> None:
    told: list[str] = []
    root = wheels.provide(LINUX, tmp_path / "toolchains", told.append)
    wheels.provide(LINUX, tmp_path / "toolchains", told.append)
    assert len(told) == 2
    (root / "bin/nvcc").write_text("half of i")
    wheels.provide(LINUX, tmp_path / "toolchains", told.append)
    assert len(told) == 4
    assert len((root / "bin/nvcc").read_text()) == 8000


def test_a_wheel_with_other_bytes_leaves_nothing(index: Path, tmp_path: Path) -> None:
    (index / "runtime.whl").write_bytes(b"another")
    with pytest.raises(IntegrityError):
        wheels.provide(LINUX, tmp_path / "toolchains", lambda _: None)
    assert list((tmp_path / "toolchains").iterdir()) == []


def test_several_at_once_end_with_one_whole_toolkit(index: Path, tmp_path: Path) -> None:
    roots: list[Path] = []
    threads = [
        threading.Thread(target=lambda: roots.append(wheels.provide(LINUX, tmp_path / "toolchains", lambda _: None)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(roots)) == 1
    assert len(roots) == 6
    assert [p.name for p in (tmp_path / "toolchains").iterdir()] == [roots[0].name]
