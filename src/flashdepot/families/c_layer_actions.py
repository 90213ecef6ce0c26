"""How the C layer is compiled: one compiler run a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flashdepot.families.c_layer import NATIVE, driver_sources, name_of_source
from flashdepot.families.family import Kit
from flashdepot.families.nvcc import cuda_actions
from flashdepot.model.action import Action
from flashdepot.model.architecture import Architecture
from flashdepot.model.recipe import Recipe
from flashdepot.targets.clang import CXX_OUTPUTS, cxx_words
from flashdepot.toolchain.nvcc_flags import nvcc_flags

FLAGS = "c_layer"
"""The name under which a recipe keeps the flags of the C layer's kernels."""

_INCLUDES = ("-I{native}/include", "-I{native}/src")


def c_layer_flags(
    kit: Kit, sass: Sequence[Architecture], *, oldest: Architecture, front_end: str, compress: str
) -> tuple[str, ...]:
    """What nvcc is told for every kernel of the C layer; ``oldest`` is the architecture that a shared front end is for."""
    virtual = oldest if front_end == "shared" else None
    flags = nvcc_flags(sass, virtual=virtual, compress=compress, options=kit.nvcc_options)
    return ("-O3", "-std=c++17", *flags)


def c_layer_actions(recipe: Recipe, kit: Kit, families: Mapping[str, tuple[str, ...]]) -> Iterator[Action]:
    """One compiler run a source: of what all families share, then of the folder of each.

    :param families: what the sources of each family's folder are compiled with besides, by its name.
    """
    yield from _folder_actions(recipe, kit, NATIVE / "src", ())
    for family, words in families.items():
        yield from _folder_actions(recipe, kit, NATIVE / "src" / family, words)
    for source in driver_sources():
        yield _cxx_action(kit, source, ())


def _folder_actions(recipe: Recipe, kit: Kit, folder: Path, words: tuple[str, ...]) -> Iterator[Action]:
    for source in sorted(folder.glob("*.cu")):
        yield from cuda_actions(
            kit, name_of_source(source), "native", _place_of(source), recipe.flags[FLAGS], _INCLUDES
        )
    for source in sorted(folder.glob("*.cpp")):
        yield _cxx_action(kit, source, words)


def _cxx_action(kit: Kit, source: Path, words: tuple[str, ...]) -> Action:
    row = kit.cross.row
    ours = ("-I{generated}", *_INCLUDES, "-I{native}/shim", "-I{native}/driver")
    return Action(
        f"{name_of_source(source)}-{row}",
        "native",
        _place_of(source),
        (*cxx_words(row), *ours, *words, "-isystem", "{cuda_include}"),
        (kit.cross.zig,),
        suffix=row.system.object_suffix,
        outputs=CXX_OUTPUTS,
    )


def _place_of(source: Path) -> str:
    return source.relative_to(NATIVE).as_posix()
