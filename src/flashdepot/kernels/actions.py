"""How CUDA and C++ sources are compiled: what families have in common, the C layer, and its generated header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from flashdepot import __version__
from flashdepot.kernels.c_layer import NATIVE, driver_sources, name_of_source
from flashdepot.kernels.family import Cross, Kit
from flashdepot.model.recipe import Action, Recipe
from flashdepot.model.selection import Unit
from flashdepot.model.target import Architecture
from flashdepot.toolchain.clang import CUDA_OUTPUTS, CXX_OUTPUTS, cuda_words, cxx_words, precompiled
from flashdepot.toolchain.nvcc import NVCC, SOURCE_NAME, VARIABLES, nvcc_flags

_DEVICE_OUTPUTS = ("-MD", "-MF", "{depfile}", "{source}", "-o", "{output}")


def cuda_actions(
    kit: Kit,
    name: str,
    place: str,
    file: str,
    flags: Sequence[str],
    words: Sequence[str],
    unit: Unit | None = None,
    header: str = "",
) -> Iterator[Action]:
    """A CUDA source to an object, with nothing in it of where it lay or when it was compiled.

    In two runs: nvcc makes a fatbin, whose bytes depend on no system, and zig's clang the host side around it.

    :param flags: what nvcc is told.
    :param words: macros and include folders, the same for both.
    :param header: what clang includes before the source; it is compiled once for all sources that have it.
    """
    arguments = _nvcc_words(kit, name, place, file, ("-fatbin", "-ccbin", "{preprocessor}", *flags, *words))
    yield Action(
        name,
        place,
        file,
        arguments,
        kit.cross.device_tools,
        VARIABLES,
        unit,
        ".fatbin",
        outputs=_DEVICE_OUTPUTS,
        uncounted=("zig", "preprocessing"),  # whatever preprocesses, and with whichever headers, the bytes are the same
    )
    yield _host_side(kit.cross, name, place, file, words, header)


def _host_side(cross: Cross, name: str, place: str, file: str, words: Sequence[str], header: str) -> Action:
    cuda = ("-isystem", "{cuda_include}", "-isystem", "{cuda_include}/cccl")
    first = ("-include", header) if header else ()
    arguments = (*cuda_words(cross.row), *words, "-I{native}/shim", *cuda, *first)
    return Action(
        f"{name}-{cross.row}",
        place,
        file,
        arguments,
        (cross.zig,),
        suffix=cross.row.system.object_suffix,
        outputs=CUDA_OUTPUTS,
        needs={"fatbin": name},
        header=precompiled(arguments) if header else None,
    )


def _nvcc_words(kit: Kit, name: str, place: str, file: str, words: Sequence[str]) -> tuple[str, ...]:
    arguments = [NVCC, *words, "-I{native}/shim"]
    if "--objdir-as-tempdir" in kit.nvcc_options:
        arguments.append("--objdir-as-tempdir")
    if "--frandom-seed" in kit.nvcc_options:
        arguments.append(f"--frandom-seed={name}")
    if kit.source_name:
        arguments += [word.format(name=f"{place}/{file}") for word in SOURCE_NAME]
    return tuple(arguments)


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


NAME = "fa_config.h"


def config_header(recipe: Recipe, lines: Iterable[str]) -> str:
    """The text of the header for one library; ``lines`` are those of its families."""
    numbers = [*recipe.toolchain.cuda.numbers, 0]
    head = [
        "// Written by flashdepot for this one library.",
        "#pragma once",
        f'#define FA_CONFIG_FLASHDEPOT "{__version__}"',
        f"#define FA_CONFIG_CUDA {numbers[0] * 1000 + numbers[1] * 10}",
        f'#define FA_CONFIG_DRIVER "{recipe.target.driver_floor}"',
        # The newest first: it is the best where it can do a problem at all.
        f"#define FA_CONFIG_FAMILIES(X) {' '.join(f'X({family})' for family in sorted(recipe.upstreams, reverse=True))}",
    ]
    return "\n".join([*head, *lines]) + "\n"


def c_string(text: str) -> str:
    """A text without what could end a string of C."""
    return "".join(c for c in text if c.isalnum() or c in "._+-")
