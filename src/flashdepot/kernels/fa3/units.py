"""The translation units of FlashAttention-3 that add something, their names, and what each is expected to cost.

Upstream has 451 for Hopper and Ampere. These are FP8, which no other family has, and the absorbed form of multi-head
latent attention: head dim 64 with one of 512 for v, and a second product of queries with v.
"""

from __future__ import annotations

import itertools
from functools import cache

from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture

NAME = "fa3"

HOPPER = Architecture.parse("90a")
"""What the kernels are for: their products are those of no other architecture."""

NAMES = (
    "-DFlash_fwd_params=flashdepot_fa3_params",
    "-Dflash=flashdepot_fa3",
    "-Dcutlass=flashdepot_fa3_cutlass",
    "-Dcute=flashdepot_fa3_cute",
)
"""Upstream's names are those of every other FlashAttention-3 and CUTLASS in a program, of whichever version: these are ours."""

FEATURES = frozenset({Feature.LOCAL, Feature.UNEVEN_K})
"""What every unit has in it. Upstream caps scores in units of their own."""

_SHAPES = ((Dtype.E4M3, 64, 64), (Dtype.E4M3, 128, 128), (Dtype.E4M3, 256, 256), (Dtype.BF16, 64, 512))
"""Dtype and head dims of q and k, and of v."""

_GB = 10**9


def unit_name(dtype: Dtype, head_dim: int, head_dim_v: int, *, paged: bool, split: bool) -> str:
    """The name of upstream's file, without its ending."""
    dims = f"{head_dim}_{head_dim_v}" if head_dim_v != head_dim else f"{head_dim}"
    return f"flash_fwd_hdim{dims}_{dtype}{'_paged' if paged else ''}{'_split' if split else ''}_sm90"


@cache
def units() -> frozenset[Unit]:
    """Every unit that is offered: each without and with pages that are read row by row, and parts of the keys."""
    return frozenset(
        Unit(NAME, Pass.SPLITKV if split else Pass.FWD, dim, dtype, False, name)
        for (dtype, dim, dim_v), paged, split in itertools.product(_SHAPES, (False, True), (False, True))
        for name in (unit_name(dtype, dim, dim_v, paged=paged, split=split),)
    )


def row(unit: Unit) -> str:
    """A unit as the C layer lists it: dtype, both head dims, whether it is for parts of the keys, and for pages."""
    dtype, dim, dim_v, paged, split = next(
        (dtype, dim, dim_v, paged, split)
        for (dtype, dim, dim_v), paged, split in itertools.product(_SHAPES, (False, True), (False, True))
        if unit_name(dtype, dim, dim_v, paged=paged, split=split) == unit.name
    )
    return f"X({dtype}, {dim}, {dim_v}, {str(split).lower()}, {str(paged).lower()})"


def estimate() -> Estimate:
    """The shipped expectation for any unit: e4m3 at head dim 128, nvcc 13.0.88, two busy cores (2026-11)."""
    return Estimate(165.0, 6 * _GB)
