"""The C layer as a compiler for Windows sees it: `_WIN32`, a `long` of 32 bits, no attributes of ELF."""

from pathlib import Path

import pytest

from flashdepot.host.probe import this_platform
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.toolchain.wheels import pinned_toolkit
from support.stub_library import family_words, write_config
from support.tools import needs, run_program

SOURCES = sorted((NATIVE / "src").rglob("*.cpp"))
COMPILER = "x86_64-w64-mingw32-g++"

pytestmark = [
    pytest.mark.nvcc,
    needs(COMPILER),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, real_depot: Path) -> list[str]:
    generated = tmp_path_factory.mktemp("generated")
    write_config(generated)
    cuda = pinned_toolkit(this_platform()).provide(real_depot / "toolchains", lambda _name: None)
    own = [generated, *(NATIVE / name for name in ("include", "src", "shim", "driver"))]
    return [*(f"-I{folder}" for folder in own), "-isystem", str(cuda / "include")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(NATIVE)))
def test_a_source_of_the_c_layer_compiles_for_windows(
    source: Path, folders: list[str], source_trees: dict[str, Path]
) -> None:
    words = ["-std=c++17", "-DFA_STATIC", "-D_USE_MATH_DEFINES", *folders, *family_words(source, source_trees)]
    run_program([COMPILER, *words, "-fsyntax-only", str(source)])
