"""How FlashAttention-2 is compiled: upstream's flags and macros, our namespace, one compiler run a source."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.families.c_layer import NATIVE, c_layer_sources, own_name
from flashdepot.families.fa2.layout import CUTLASS_INCLUDE, SOURCE_DIR
from flashdepot.families.fa2.units import NAME
from flashdepot.families.family import Kit
from flashdepot.model.action import Action
from flashdepot.model.architecture import Architecture
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import Feature, Unit
from flashdepot.toolchain.nvcc_flags import nvcc_flags
from flashdepot.toolchain.probe_compile import SOURCE_NAME
from flashdepot.upstream import Identified

NAMESPACE = "flashdepot_fa2"
"""The C++ namespace of the kernels: ours, so that another FlashAttention in the same process never meets them."""

_NAMESPACE_MACRO = f"-DFLASH_NAMESPACE={NAMESPACE}"

_SPLIT = "--split-compile"
"""nvcc's option for the last phase of one unit on several cores."""

_UPSTREAM_FLAGS = (
    # Upstream's own (setup.py, nvcc_flags); its numerics are tested with these and no others.
    "-O3",
    "-std=c++17",
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "--use_fast_math",
)


def feature_macros(available: frozenset[Feature], selected: frozenset[Feature]) -> tuple[str, ...]:
    """Upstream's macros that leave out what is not selected, among those that the tree knows."""
    return tuple(f"-DFLASHATTENTION_DISABLE_{f.value.upper()}" for f in Feature if f in available - selected)


def flags(
    kit: Kit, sass: Sequence[Architecture], *, front_end: str, compress: str, oldest: Architecture
) -> tuple[str, ...]:
    """What every CUDA source is compiled with, besides its own macros and include folders.

    With the ``shared`` front end code is generated once, for the oldest architecture: upstream's code asks no more of
    ``__CUDA_ARCH__`` than that it is at least 800, so this gives the same algorithm as code generated for each.
    """
    return (
        *_UPSTREAM_FLAGS,
        _NAMESPACE_MACRO,
        *nvcc_flags(
            sass,
            virtual=oldest if front_end == "shared" else None,
            compress=compress,
            options=kit.nvcc_options,
            host=kit.dialect.host_flags(kit.cuda, kit.nvcc_options),
        ),
    )


def actions(recipe: Recipe, source: Identified, kit: Kit) -> tuple[Action, ...]:
    """Every compiler run: one a translation unit, one a source of the C layer."""
    tools, dialect = recipe.toolchain.tools, kit.dialect

    def cuda(name: str, file: str, place: str, unit: Unit | None, extra: tuple[str, ...]) -> Action:
        arguments = [dialect.nvcc, "-ccbin", "{cxx}", *recipe.flags[NAME], *extra, "-I{native}/shim"]
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
            dialect.variables,
            unit,
            dialect.object_suffix,
            threads=_SPLIT if _SPLIT in kit.nvcc_options else None,
        )

    macros = feature_macros(source.features, recipe.selection.features)
    kernels = [
        cuda(u.name, f"{SOURCE_DIR}/{u.name}.cu", "upstream", u, (*macros, f"-I{CUTLASS_INCLUDE}", f"-I{SOURCE_DIR}"))
        for u in sorted(recipe.selection.units)
        if u.family == NAME
    ]
    own_kernels = [
        cuda(own_name(p), p.relative_to(NATIVE).as_posix(), "native", None, ("-I{native}/include", "-I{native}/src"))
        for p in c_layer_sources(NAME, ".cu")
    ]
    cxx_tools = tools if dialect.c_layer_by_nvcc else tools[tools.index(recipe.toolchain.host_compiler) :]
    host_flags = dialect.host_flags(kit.cuda, kit.nvcc_options)
    ours = ("-I{generated}", "-I{native}/include", "-I{native}/src", "-I{native}/shim")
    theirs = (f"-I{{upstream}}/{SOURCE_DIR}", f"-I{{upstream}}/{CUTLASS_INCLUDE}", "-isystem", "{cuda_include}")
    own = [
        Action(
            own_name(p),
            "native",
            p.relative_to(NATIVE).as_posix(),
            (
                *dialect.c_layer,
                _NAMESPACE_MACRO,
                *(host_flags if dialect.c_layer_by_nvcc else (f"-frandom-seed={own_name(p)}",)),
                *ours,
                *theirs,
            ),
            cxx_tools,
            dialect.variables,
            suffix=dialect.object_suffix,
        )
        for p in c_layer_sources(NAME, ".cpp")
    ]
    return (*kernels, *own_kernels, *own)
