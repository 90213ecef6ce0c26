"""The library under test, and a GPU to run it on; without either, the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from attention import Call, Problem
from cache import CacheCall, Cached
from packed import Packed, PackedCall
from torch_with_gpu import torch

from support.fa_abi import Answer, Contents, Dtype, Family, Feature, Library, OneFamily, Pass, Status


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
def library(library_folder: Path) -> Library:
    """The library; asked for the family that FLASHDEPOT_TEST_FAMILY names (fa2, fa4), where that is set."""
    path = library_folder / "lib" / "shared" / ("flashattention.dll" if os.name == "nt" else "libflashattention.so")
    named = os.environ.get("FLASHDEPOT_TEST_FAMILY")
    return OneFamily(path, Family[named.upper()]) if named else Library(path)


@pytest.fixture(scope="session")
def contents(library: Library) -> Contents:
    return library.contents()


def is_full(contents: Contents, passes: tuple[Pass, ...]) -> bool:
    units = {
        (kind, dtype, dim, causal)
        for kind in passes
        for dtype in Dtype
        for dim in contents.head_dims
        for causal in (False, True)
    }
    needed = Feature.ALIBI | Feature.SOFTCAP | Feature.LOCAL | Feature.UNEVEN_K
    return units <= contents.units and needed in contents.features


@pytest.fixture
def require(contents: Contents, library: Library) -> Callable[[Answer], None]:
    """Skip what this library, or the family that it is asked for, has not got; a full library may not refuse."""

    def check(answer: Answer) -> None:
        asked = (library.family,) if isinstance(library, OneFamily) else contents.families
        if Family.FA2 not in {*asked} & {*contents.families} and answer.status in (
            Status.UNSUPPORTED,
            Status.NO_KERNEL_FOR_ARCH,
        ):
            pytest.skip(answer.text)
        if answer.status is Status.UNSUPPORTED and "is not in this library" in answer.text:
            missing = (Pass.BWD,) if "backward" in answer.text else (Pass.FWD, Pass.SPLITKV)
            if not is_full(contents, missing):
                pytest.skip(answer.text)
        if answer.status is Status.UNSUPPORTED and "was built without" in answer.text:
            pytest.skip(answer.text)
        assert answer.status is Status.OK, answer

    return check


CALLS = {Problem: Call, Packed: PackedCall, Cached: CacheCall}


@pytest.fixture
def make_call(library: Library, require: Callable[[Answer], None]) -> Callable[[Problem], Call]:
    """Make a call of a problem's kind that this library runs."""

    def make(problem: Problem) -> Call:
        call = CALLS[type(problem)](problem, library)
        require(library.supports(0, call.args))
        return call

    return make


@pytest.fixture(scope="session")
def cuda_root() -> Path:
    """Find a CUDA toolkit."""
    nvcc = shutil.which("nvcc")
    for root in [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parents[1], "/usr/local/cuda"]:
        if root and (Path(root) / "include" / "cuda_runtime_api.h").is_file():
            return Path(root)
    pytest.skip("needs a CUDA toolkit for its headers and libcudart; set CUDA_HOME")
