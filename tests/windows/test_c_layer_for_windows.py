"""The C layer as a compiler for Windows sees it: `_WIN32`, a `long` of 32 bits, no attributes of ELF."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flashdepot.host.probe import this_platform
from flashdepot.kernels import actions, family_of
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.kernels.fa2.units import NAMESPACE
from flashdepot.kernels.fa4.actions import config_lines
from flashdepot.kernels.fa4.units import units
from flashdepot.model.selection import ALL_FEATURES, Selection
from flashdepot.toolchain.wheels import provide
from flashdepot.upstream import Identified
from support.recipes import make_recipe
from support.tools import needs

COMPILER = "x86_64-w64-mingw32-g++"

pytestmark = [
    pytest.mark.nvcc,
    needs(COMPILER),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, real_depot: Path, upstream_tree: Path) -> list[str]:
    generated = tmp_path_factory.mktemp("generated")
    recipe = make_recipe()
    source = Identified(recipe.upstream, recipe.selection.units, ALL_FEATURES)
    lines = [*family_of("fa2").config_lines(recipe.selection, recipe.target.sass, source)]
    lines += config_lines(Selection(units(), ALL_FEATURES), recipe.target.sass, "4.0.0b36")
    (generated / actions.CONFIG_HEADER).write_text(actions.config_header(recipe, lines))
    cuda = provide(this_platform(), real_depot / "toolchains", lambda _name: None)
    own = [generated, NATIVE, NATIVE / "include", NATIVE / "src", NATIVE / "shim"]
    theirs = [upstream_tree / "csrc/flash_attn/src", upstream_tree / "csrc/cutlass/include", cuda / "include"]
    return [*(f"-I{folder}" for folder in own), *(word for folder in theirs for word in ("-isystem", str(folder)))]


@pytest.mark.parametrize("source", sorted((NATIVE / "src").rglob("*.cpp")), ids=lambda path: path.stem)
def test_a_source_of_the_c_layer_compiles_for_windows(source: Path, folders: list[str]) -> None:
    command = [
        COMPILER,
        "-std=c++17",
        "-DFA_STATIC",
        f"-DFLASH_NAMESPACE={NAMESPACE}",
        "-D_USE_MATH_DEFINES",
        "-fsyntax-only",
        *folders,
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
