import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashdepot.depot import Depot
from flashdepot.upstream import SourceTree
from support import forge
from support.tools import flashdepot_here
from support.wheels import make_source, store_wheel_library


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    return make_source(tmp_path / "upstream")


@pytest.fixture
def depot(tmp_path: Path, tree: SourceTree, recorder: Path) -> Depot:
    """A depot with one library that loads."""
    made = Depot(tmp_path / "depot")
    store_wheel_library(made, tree, tmp_path / "files", recorder)
    return made


@pytest.fixture
def install(tmp_path: Path, tree: SourceTree, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run `flashdepot install`."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    words = ("install", "--profile", "quick", "--arch", "80", "--upstream", tree.root, "--depot")
    return lambda depot, *arguments: flashdepot_here(*words, depot.root, *arguments, cwd=tmp_path)


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """The files of a flash-attn whose compiled module takes a symbol from torch."""
    folder = tmp_path_factory.mktemp("parts")

    def make(symbol: str) -> dict[str, bytes]:
        source = f"extern void {symbol}(void); void init(void) {{ {symbol}(); }}"
        library = forge.shared_library(folder, source, name=f"{symbol}.so")
        return {
            "flash_attn/__init__.py": b"__version__ = '2.8.3'\n",
            "flash_attn/kernels.so": library.read_bytes() + os.urandom(200_000),
            "flash_attn_2_cuda.py": b"",
        }

    return make


@pytest.fixture(autouse=True)
def _nobody_has_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here compiles."""
    monkeypatch.delenv("FLASHDEPOT_BUILD", raising=False)
