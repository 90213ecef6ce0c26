"""Fixtures over stub_library: the C layer without kernels and without a GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stub_library
from stub_library import FULL, Selection, Stub


@pytest.fixture(scope="session")
def cuda_include(real_depot: Path) -> Path:
    """Find the folder with cuda_runtime_api.h; a depot that has built something has one."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).resolve().parents[1]]
    for root in [*roots, "/usr/local/cuda", *sorted((real_depot / "toolchains").glob("cuda-*"))]:
        if root and (Path(root) / "include" / "cuda_runtime_api.h").is_file():
            return Path(root) / "include"
    pytest.skip("needs the CUDA headers; set CUDA_HOME to a toolkit")


@pytest.fixture(scope="session")
def build_stub(
    upstream_tree: Path, cuda_include: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Selection], Stub]:
    """Build selections, each once."""
    built: dict[Selection, Stub] = {}

    def build(selection: Selection) -> Stub:
        if selection not in built:
            folder = tmp_path_factory.mktemp("stub")
            built[selection] = stub_library.build(selection, folder, upstream_tree, cuda_include)
        return built[selection]

    return build


@pytest.fixture
def full(build_stub: Callable[[Selection], Stub]) -> Iterator[Stub]:
    """Every unit and feature."""
    stub = build_stub(FULL)
    stub.reset()
    yield stub
    stub.reset()
