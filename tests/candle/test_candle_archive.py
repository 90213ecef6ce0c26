"""The tools that make candle's archive: which run for which platform, and what is said when one cannot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flashdepot.errors import CompileError, IntegrityError, MissingToolError
from flashdepot.link.candle_delivery import prepare_folder
from flashdepot.link.library import read_library
from flashdepot.toolchain.zig import Zig

pytestmark = pytest.mark.nvcc


def no_zig() -> Zig:
    raise AssertionError("this machine's own tools make an archive for it")


@pytest.fixture
def library(quick_library: Path, tmp_path: Path) -> Path:
    """A copy of a library that may be changed."""
    copy: Path = shutil.copytree(quick_library, tmp_path / "library")
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(0o755)
    return copy


def test_a_library_without_its_archive_is_refused_before_anything_is_written(library: Path, tmp_path: Path) -> None:
    (library / "lib/static/libflashattention.a").unlink()
    with pytest.raises(IntegrityError, match=r"libflashattention\.a is missing"):
        prepare_folder(read_library(library), 37, tmp_path / "out", None, no_zig)
    assert not (tmp_path / "out").exists()


def test_a_missing_tool_is_named_with_its_package(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    (only / "cc").symlink_to(shutil.which("cc") or "cc")
    monkeypatch.setenv("PATH", str(only))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingToolError, match="'ld' was not found") as caught:
        prepare_folder(read_library(library), 37, tmp_path / "out", None, no_zig)
    assert "binutils" in caught.value.hint


def test_a_compiler_that_refuses_is_quoted(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (library / "include/flash_attention.h").chmod(0o644)
    (library / "include/flash_attention.h").write_text("#error this header is broken\n")
    with pytest.raises(CompileError, match="this header is broken"):
        prepare_folder(read_library(library), 37, tmp_path / "out", None, no_zig)
