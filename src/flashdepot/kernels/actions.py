"""How CUDA and C++ sources are compiled: what families have in common, the C layer, and its generated header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot import __version__
from flashdepot.kernels.c_layer import NATIVE, driver_sources, name_of_source
from flashdepot.model.recipe import Action, Recipe, Tool
from flashdepot.model.selection import Unit
from flashdepot.model.target import Architecture, Version
from flashdepot.toolchain.nvcc import NVCC, SOURCE_NAME, VARIABLES, nvcc_flags
from flashdepot.toolchain.targets import CUDA_OUTPUTS, CXX_OUTPUTS, TargetSpec, cuda_words, cxx_words, precompiled


class Compilers(msgspec.Struct, frozen=True):
    """The available compilers as facts, without a path: nvcc's programs, and zig, for a target that need not be this machine.

    ``nvcc_options`` are the long options of the available nvcc. ``source_name`` says whether it takes the arguments that
    replace a source's absolute path in its internal names.
    """

    cuda: Version
    nvcc_options: frozenset[str]
    target: TargetSpec
    device_tools: tuple[Tool, ...]
    zig: Tool
    source_name: bool = True


_DEVICE_OUTPUTS = ("-MD", "-MF", "{depfile}", "{source}", "-o", "{output}")


def cuda_actions(
    compilers: Compilers,
    name: str,
    place: str,
    file: str,
    flags: Sequence[str],
    words: Sequence[str],
    unit: Unit | None = None,
    header: str = "",
    host_words: Sequence[str] = (),
) -> Iterator[Action]:
    """A CUDA source to an object, with nothing in it of where it lay or when it was compiled.

    In two runs: nvcc makes a fatbin, whose bytes depend on no system, and zig's clang the host side around it.

    :param flags: what nvcc is given.
    :param words: macros and include folders, the same for both.
    :param header: what clang includes before the source; it is compiled once for all sources that have it.
    :param host_words: macros and include folders of the host side only, which come before the others.
    """
    device = [NVCC, "-fatbin", "-ccbin", "{preprocessor}", *flags, *words, "-I{native}/shim"]
    if "--objdir-as-tempdir" in compilers.nvcc_options:
        device.append("--objdir-as-tempdir")
    if "--frandom-seed" in compilers.nvcc_options:
        device.append(f"--frandom-seed={name}")
    if compilers.source_name:
        device += [word.format(name=f"{place}/{file}") for word in SOURCE_NAME]
    yield Action(
        name,
        place,
        file,
        tuple(device),
        compilers.device_tools,
        VARIABLES,
        unit,
        ".fatbin",
        outputs=_DEVICE_OUTPUTS,
        uncounted=("zig", "preprocessing"),  # whatever preprocesses, and with whichever headers, the bytes are the same
    )
    target = compilers.target
    cuda = ("-isystem", "{cuda_include}", "-isystem", "{cuda_include}/cccl")
    first = ("-include", header) if header else ()
    host = (*cuda_words(target), *host_words, *words, "-I{native}/shim", *cuda, *first)
    yield Action(
        f"{name}-{target}",
        place,
        file,
        host,
        (compilers.zig,),
        suffix=target.system.object_suffix,
        outputs=CUDA_OUTPUTS,
        needs={"fatbin": name},
        header=precompiled(host) if header else None,
    )


FLAGS = "c_layer"
"""The name under which a recipe keeps the flags of the C layer's kernels; those of a family have its name after it."""

_INCLUDES = ("-I{native}/include", "-I{native}/src")


def c_layer_flags(
    compilers: Compilers,
    sass: Sequence[Architecture],
    oldest: Mapping[str, Architecture],
    *,
    compress: str,
) -> dict[str, tuple[str, ...]]:
    """What nvcc is given for the kernels of the C layer: of what all families share, and of the folder of each.

    :param oldest: by family, the oldest GPU that it runs on: the front end that all architectures share is for that one.
    """

    def flags(first: Architecture) -> tuple[str, ...]:
        newer = [architecture for architecture in sass if architecture >= first]
        more = nvcc_flags(newer, virtual=first, compress=compress, options=compilers.nvcc_options)
        return ("-O3", "-std=c++17", *more)

    return {FLAGS: flags(min(oldest.values()))} | {f"{FLAGS}_{name}": flags(first) for name, first in oldest.items()}


def c_layer_actions(recipe: Recipe, compilers: Compilers, families: Mapping[str, tuple[str, ...]]) -> Iterator[Action]:
    """One compiler run a source: of what all families share, then of the folder of each.

    :param families: what the sources of each family's folder are also compiled with, by its name.
    """
    root = NATIVE / "src"
    folders = [(root, FLAGS, ()), *((root / name, f"{FLAGS}_{name}", words) for name, words in families.items())]
    for folder, flags, words in folders:
        for source in sorted(folder.glob("*.cu")):
            name, place = name_of_source(source), _place_of(source)
            yield from cuda_actions(compilers, name, "native", place, recipe.flags[flags], _INCLUDES)
        for source in sorted(folder.glob("*.cpp")):
            yield _cxx_action(compilers, source, words)
    for source in driver_sources():
        yield _cxx_action(compilers, source, ())


def _cxx_action(compilers: Compilers, source: Path, words: tuple[str, ...]) -> Action:
    target = compilers.target
    ours = ("-I{generated}", *_INCLUDES, "-I{native}/shim", "-I{native}/driver")
    return Action(
        f"{name_of_source(source)}-{target}",
        "native",
        _place_of(source),
        (*cxx_words(target), *ours, *words, "-isystem", "{cuda_include}"),
        (compilers.zig,),
        suffix=target.system.object_suffix,
        outputs=CXX_OUTPUTS,
    )


def _place_of(source: Path) -> str:
    return source.relative_to(NATIVE).as_posix()


CONFIG_HEADER = "fa_config.h"


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
