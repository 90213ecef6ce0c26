"""One run of nvcc, as families and the C layer have it in common."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.families.family import Kit
from flashdepot.model.action import Action
from flashdepot.model.recipe import Tool
from flashdepot.model.selection import Unit
from flashdepot.toolchain.probe_compile import SOURCE_NAME

_SPLIT = "--split-compile"
"""nvcc's option for the last phase of one source on several cores."""


def nvcc_action(
    kit: Kit,
    name: str,
    place: str,
    file: str,
    words: Sequence[str],
    tools: tuple[Tool, ...],
    unit: Unit | None = None,
) -> Action:
    """A CUDA source to an object, with nothing in it of where it lay or when it was compiled.

    :param words: the flags and include folders.
    """
    arguments = [kit.dialect.nvcc, "-ccbin", "{cxx}", *words, "-I{native}/shim"]
    if "--objdir-as-tempdir" in kit.nvcc_options:
        arguments.append("--objdir-as-tempdir")
    if "--frandom-seed" in kit.nvcc_options:
        arguments.append(f"--frandom-seed={name}")
    if kit.source_name:
        arguments += [word.format(name=f"{place}/{file}") for word in SOURCE_NAME]
    return Action(
        name,
        place,
        file,
        tuple(arguments),
        tools,
        kit.dialect.variables,
        unit,
        kit.dialect.object_suffix,
        threads=_SPLIT if _SPLIT in kit.nvcc_options else None,
    )
