"""A CUDA source to an object, as families and the C layer have it in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashdepot.families.family import Cross, Kit
from flashdepot.model.action import Action
from flashdepot.model.selection import Unit
from flashdepot.targets.clang import CUDA_OUTPUTS, cuda_words, precompiled
from flashdepot.toolchain.nvcc_flags import NVCC, SOURCE_NAME, VARIABLES

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
