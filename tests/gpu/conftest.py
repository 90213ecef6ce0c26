"""The library under test, and a GPU to run it on; without either, the reason."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "native"))  # the ctypes binding is shared
from torch_with_gpu import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    if not here:
        return
    for item in here:
        item.add_marker(pytest.mark.gpu)
        item.add_marker(pytest.mark.filterwarnings("ignore"))  # torch's own
        if isinstance(torch, str):
            item.add_marker(pytest.mark.skip(reason=torch))


@pytest.fixture(scope="session")
def library_folder(request: pytest.FixtureRequest) -> Path:
    """FLASHDEPOT_TEST_LIBRARY, a folder as `flashdepot get` writes it, or the quick library."""
    named = os.environ.get("FLASHDEPOT_TEST_LIBRARY")
    folder: Path = Path(named) if named else request.getfixturevalue("quick_library")
    return folder.resolve()


@pytest.fixture(scope="session")
def cuda_root() -> Path:
    """Find a CUDA toolkit."""
    nvcc = shutil.which("nvcc")
    for root in [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parents[1], "/usr/local/cuda"]:
        if root and (Path(root) / "include" / "cuda_runtime_api.h").is_file():
            return Path(root)
    pytest.skip("needs a CUDA toolkit for its headers and libcudart; set CUDA_HOME")
