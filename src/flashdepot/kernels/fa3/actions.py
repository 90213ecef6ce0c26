"""How FlashAttention-3 is compiled: upstream's flags, names of our own, one compiler run a unit, and two for what units call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashdepot.kernels.actions import Compilers, c_string, cuda_actions
from flashdepot.kernels.fa3 import CUTLASS_INCLUDE, HOPPER, NAME, NAMES, SOURCE_DIR, UNITS_DIR, row
from flashdepot.model.recipe import Action, Recipe
from flashdepot.model.selection import Feature, Pass, Selection
from flashdepot.model.target import Architecture
from flashdepot.toolchain.nvcc import nvcc_flags
from flashdepot.upstream import Identified

_UPSTREAM_FLAGS = ("-O3", "-std=c++17", "--expt-relaxed-constexpr", "--use_fast_math")
"""Upstream's own (hopper/setup.py, nvcc_flags), less those that only inform."""

MACROS = (
    "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED",
    "-DCUTLASS_ENABLE_GDC_FOR_SM90",
    "-DCUTLASS_DEBUG_TRACE_LEVEL=0",
    "-DNDEBUG",
    "-DFLASHATTENTION_DISABLE_SM8x",
    *NAMES,
)
"""Upstream's, and those that rename."""

_HOST_WORDS = ("-Wno-cuda-compat", "-I{native}/host/fa3")
"""Of the host side: a stand-in for CUB is in that folder."""
_HEADER = "{native}/host/fa3/launch.h"

_PREPARES, _COMBINES = "flash_prepare_scheduler", "flash_fwd_combine"
"""What units for lists of lengths call before, and units for parts of the keys after."""


def flags(
    compilers: Compilers,
    sass: Sequence[Architecture],  # noqa: ARG001
    *,
    compress: str,
) -> tuple[str, ...]:
    """What every source is compiled with, next to its macros and include folders: for Hopper, whatever else is asked for."""
    more = nvcc_flags((HOPPER,), virtual=None, compress=compress, options=compilers.nvcc_options)
    return (*_UPSTREAM_FLAGS, *more)


def actions(recipe: Recipe, source: Identified, compilers: Compilers) -> Iterator[Action]:  # noqa: ARG001
    """The compiler runs of each translation unit, and of what they call."""
    words = (*MACROS, f"-I{CUTLASS_INCLUDE}", f"-I{SOURCE_DIR}")
    units = {unit.name: unit for unit in sorted(recipe.selection.units) if unit.family == NAME}
    files = {name: f"{UNITS_DIR}/{name}.cu" for name in units}
    files[_PREPARES] = f"{SOURCE_DIR}/{_PREPARES}.cu"
    if any(unit.pass_ is Pass.SPLITKV for unit in units.values()):
        files[_COMBINES] = f"{SOURCE_DIR}/{_COMBINES}.cu"
    for name, file in files.items():
        yield from cuda_actions(
            compilers, f"{NAME}_{name}", NAME, file, recipe.flags[NAME], words, units.get(name), _HEADER, _HOST_WORDS
        )


def config_lines(selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterator[str]:  # noqa: ARG001
    """Yield the version, the architectures, the features, and the units (native/src/fa3/units.cpp)."""
    yield f'#define FA3_CONFIG_UPSTREAM "{c_string(source.id.version)}"'
    yield from (f"#define FA3_CONFIG_HAS_{f.value.upper()} {int(f in selection.features)}" for f in Feature)
    units = sorted(unit for unit in selection.units if unit.family == NAME)
    yield f"#define FA3_CONFIG_HAS_COMBINE {int(any(unit.pass_ is Pass.SPLITKV for unit in units))}"
    yield " \\\n    ".join(["#define FA3_CONFIG_UNITS(X)", *map(row, units)])
