"""A real library, and stub_library: the C layer without kernels and without a GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support import stub_library
from support.fa_abi import Library
from support.stub_library import FULL, Selection, Stub


@pytest.fixture(scope="session")
def library(quick_library: Path) -> Library:
    """The quick library, asked by ctypes."""
    return Library(quick_library / "lib" / "shared" / "libflashattention.so")


@pytest.fixture(scope="session")
def build_stub(
    upstream_tree: Path, cuda_include: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Selection], Stub]:
    """Build selections, each once; what was launched and set before is forgotten."""
    built: dict[Selection, Stub] = {}

    def build(selection: Selection) -> Stub:
        if selection not in built:
            folder = tmp_path_factory.mktemp("stub")
            built[selection] = stub_library.build(selection, folder, upstream_tree, cuda_include)
        built[selection].reset()
        return built[selection]

    return build


@pytest.fixture
def full(build_stub: Callable[[Selection], Stub]) -> Stub:
    """Every unit and feature."""
    return build_stub(FULL)
