"""How FlashAttention-2 is compiled: upstream's flags and macros, our namespace, one compiler run a unit.

Versions differ in ways that the C layer must know: ``quirks.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from flashdepot.facts import read_table
from flashdepot.kernels.actions import Compilers, c_string, cuda_actions
from flashdepot.kernels.fa2 import CUTLASS_INCLUDE, NAME, NAMESPACE_MACRO, OLDEST, SOURCE_DIR
from flashdepot.model.recipe import Action, Recipe
from flashdepot.model.selection import Feature, Pass, Selection
from flashdepot.model.target import Architecture
from flashdepot.toolchain.nvcc import nvcc_flags
from flashdepot.upstream import Identified

UPSTREAM_FLAGS = (
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


def flags(compilers: Compilers, sass: Sequence[Architecture], *, compress: str) -> tuple[str, ...]:
    """What every CUDA source is compiled with, next to its own macros and include folders.

    Code is generated once, for the oldest architecture: upstream's code asks no more of ``__CUDA_ARCH__`` than that it
    is at least 800, so this gives the same algorithm as code generated for each.
    """
    more = nvcc_flags(sass, virtual=OLDEST, compress=compress, options=compilers.nvcc_options)
    return (*UPSTREAM_FLAGS, NAMESPACE_MACRO, *more)


def feature_macros(available: frozenset[Feature], selected: frozenset[Feature]) -> tuple[str, ...]:
    """Upstream's macros that leave out what is not selected, among those that the tree knows."""
    return tuple(f"-DFLASHATTENTION_DISABLE_{f.value.upper()}" for f in Feature if f in available - selected)


def actions(recipe: Recipe, source: Identified, compilers: Compilers) -> Iterator[Action]:
    """The compiler runs of each translation unit."""
    macros = feature_macros(source.features, recipe.selection.features)
    words = (NAMESPACE_MACRO, *macros, f"-I{CUTLASS_INCLUDE}", f"-I{SOURCE_DIR}")
    for unit in sorted(recipe.selection.units):
        if unit.family == NAME:
            file = f"{SOURCE_DIR}/{unit.name}.cu"
            header = f"{{native}}/host/fa2/{'backward' if unit.pass_ is Pass.BWD else 'forward'}.h"
            yield from cuda_actions(compilers, unit.name, "upstream", file, recipe.flags[NAME], words, unit, header)


def config_lines(selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterator[str]:
    """Yield the version and its quirks, the head dims of the tree, the features, and the units of each pass."""
    version = source.id.version
    # The first version whose backward kernels index the float gradient of q with 64 bits.
    since = read_table(Path(__file__).with_name("quirks.toml"))["dq_index_64_bits"]["since"]
    yield f'#define FA2_CONFIG_UPSTREAM "{c_string(version)}"'
    yield f"#define FA2_CONFIG_DQ_INDEX_BITS {64 if _is_at_least(version, since) else 32}"
    yield f'#define FA2_CONFIG_DQ_INDEX_64_SINCE "{since}"'
    yield f"#define FA2_CONFIG_SASS {', '.join(map(str, sass))}"
    head_dims = sorted({u.head_dim for u in source.units})
    yield f"#define FA2_CONFIG_HEAD_DIMS {', '.join(map(str, head_dims))}"
    yield from (f"#define FA2_CONFIG_HAS_{f.value.upper()} {int(f in selection.features)}" for f in Feature)
    for pass_ in Pass:
        units = sorted(u for u in selection.units if u.family == NAME and u.pass_ is pass_)
        entries = [f"X({u.dtype}, {u.head_dim}, {str(u.causal).lower()})" for u in units]
        yield " \\\n    ".join([f"#define FA2_CONFIG_{pass_.value.upper()}_UNITS(X)", *entries])


def _is_at_least(version: str, since: str) -> bool:
    """Not of a tree without a version."""
    try:
        return Version(version) >= Version(since)
    except InvalidVersion:
        return False
