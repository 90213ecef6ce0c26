"""How FlashAttention-2 is compiled: upstream's flags and macros, our namespace, one compiler run a unit."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.families.fa2.layout import CUTLASS_INCLUDE, SOURCE_DIR
from flashdepot.families.fa2.units import NAME, NAMESPACE_MACRO
from flashdepot.families.family import Kit
from flashdepot.families.nvcc import cuda_actions
from flashdepot.model.action import Action
from flashdepot.model.architecture import Architecture
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import Feature, Pass
from flashdepot.toolchain.nvcc_flags import nvcc_flags
from flashdepot.upstream import Identified

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
        NAMESPACE_MACRO,
        *nvcc_flags(
            sass,
            virtual=oldest if front_end == "shared" else None,
            compress=compress,
            options=kit.nvcc_options,
        ),
    )


def actions(recipe: Recipe, source: Identified, kit: Kit) -> tuple[Action, ...]:
    """The compiler runs of each translation unit."""
    macros = feature_macros(source.features, recipe.selection.features)
    words = (*macros, f"-I{CUTLASS_INCLUDE}", f"-I{SOURCE_DIR}")
    host = (NAMESPACE_MACRO, *words)
    return tuple(
        action
        for u in sorted(recipe.selection.units)
        if u.family == NAME
        for action in cuda_actions(
            kit,
            u.name,
            "upstream",
            f"{SOURCE_DIR}/{u.name}.cu",
            recipe.flags[NAME],
            host,
            u,
            f"{{native}}/host/fa2/{'backward' if u.pass_ is Pass.BWD else 'forward'}.h",
        )
    )
