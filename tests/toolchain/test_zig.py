"""zig from a package index, into a depot: a server of this machine serves a small wheel in its place."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.files.folders import make_whole
from flashdepot.model.target import Platform
from flashdepot.toolchain import zig
from support.index_server import IndexServer, serve_index

LINUX = Platform("linux", "x86_64")
VERSION = "0.14.1"
NAME = "ziglang-0.14.1-py3-none-any.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """An index with a wheel that is the pinned one."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        for name in ("zig", "lib/compiler_rt.zig", "lib/docs/index.html"):
            wheel.writestr(f"ziglang/{name}", name)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    pin = {"version": VERSION, "wheel": [{"filename": NAME, "sha256": digest, "platform": str(LINUX)}]}
    monkeypatch.setattr(zig, "_data", lambda: {"zig": [pin]})
    with serve_index() as server:
        server.files[NAME] = content.getvalue()
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        yield server


def provide(depot: Path) -> zig.Zig:
    return zig.provide_zig(LINUX, depot, lambda _: None, VERSION)


def test_what_compiles_is_unpacked_once_and_then_needs_no_network(
    index: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = provide(tmp_path / "depot")
    assert made.program.stat().st_mode & 0o100
    assert (made.lib / "compiler_rt.zig").is_file()
    assert not (made.lib / "docs").exists()
    assert [path.name for path in (tmp_path / "depot").iterdir()] == [made.root.name]
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    asked = len(index.requests)
    assert provide(tmp_path / "depot") == made
    assert len(index.requests) == asked


@pytest.mark.parametrize("damage", [lambda wheel: wheel[:-1] + b"?", lambda wheel: wheel[: len(wheel) // 2]])
def test_a_damaged_wheel_is_refused_and_nothing_of_it_is_kept(index: IndexServer, tmp_path: Path, damage) -> None:
    pinned = hashlib.sha256(index.files[NAME]).hexdigest()
    index.declared[NAME] = pinned
    index.files[NAME] = damage(index.files[NAME])
    with pytest.raises(IntegrityError) as caught:
        provide(tmp_path / "depot")
    assert caught.value.exit_code == 6
    assert NAME in caught.value.message
    assert pinned in caught.value.message
    assert hashlib.sha256(index.files[NAME]).hexdigest() in caught.value.message
    assert list((tmp_path / "depot").iterdir()) == []


def test_what_is_kept_for_links_may_hold_notes_that_lead_nowhere(index: IndexServer, tmp_path: Path) -> None:
    """zig notes what it linked as the text of a link; what an earlier release kept has one."""
    made = provide(tmp_path / "depot")

    def kept(folder: Path) -> None:
        folder.mkdir()
        (folder / "lld.id").symlink_to("9f35673bbcac3a97f54a90a602d678b4")

    make_whole(made.root.with_name(f"{made.root.name}-for-x86_64-linux-gnu.2.17"), kept)
    (tmp_path / "work").mkdir()
    made.linker("x86_64-linux-gnu.2.17", tmp_path / "work")
    assert (tmp_path / "work" / "zig-cache" / "lld.id").is_symlink()
