"""How FlashAttention-2 is compiled: upstream's flags and macros, our namespace, one compiler run a unit.

Versions differ in ways that the C layer must know: ``quirks.toml``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from flashdepot.facts import read_table
from flashdepot.kernels.actions import cuda_actions
from flashdepot.kernels.fa2.sources import CUTLASS_INCLUDE, SOURCE_DIR
from flashdepot.kernels.fa2.units import NAME, NAMESPACE_MACRO
from flashdepot.kernels.family import Kit
from flashdepot.model.recipe import Action, Recipe
from flashdepot.model.selection import Feature, Pass
from flashdepot.model.target import Architecture
from flashdepot.toolchain.nvcc import nvcc_flags
from flashdepot.upstream import Identified

_FILE = Path(__file__).with_name("quirks.toml")


def dq_index_64_since() -> str:
    """The first version whose backward kernels index the float gradient of q with 64 bits."""
    since: str = _data()["dq_index_64_bits"]["since"]
    return since


def indexes_dq_with_64_bits(version: str) -> bool:
    """Whether the backward kernels of that version do; not known of a tree without a version, so no."""
    try:
        return Version(version) >= Version(dq_index_64_since())
    except InvalidVersion:
        return False


@cache
def _data() -> dict[str, Any]:
    return read_table(_FILE)


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
