"""The kernels of each architecture: how each is compiled, and what its launch must know."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from flashdepot.families.fa4.targets import SASS
from flashdepot.families.fa4.units import variants_of
from flashdepot.families.fa4.variants import JobValue, Variant
from flashdepot.model.architecture import Architecture
from flashdepot.model.selection import Unit


class Kernel(msgspec.Struct, frozen=True):
    """A variant for an architecture.

    ``program`` compiles it, in the worker's folder. ``tiles`` are query rows and keys at a time. ``walks`` says whether its
    number of blocks is an argument, and ``shortest`` from which length on it is faster than its neighbour.
    """

    variant: Variant
    arch: str
    program: str
    job: dict[str, JobValue]
    tiles: tuple[int, int]
    walks: bool = False
    shortest: int = 0


def kernels_of(selected: Iterable[Unit], sass: Iterable[Architecture]) -> list[Kernel]:
    """The kernels that some units come to, for those architectures that there are kernels for."""
    variants = variants_of(selected)
    found = [_MADE[a.major](SASS[a], variant) for a in sass if a in SASS for variant in variants]
    return [kernel for kernel in found if kernel is not None]


def _of_hopper(arch: str, variant: Variant) -> Kernel:
    return Kernel(variant, arch, "", variant.job(), variant.tiles, variant.walks, variant.shortest)


_TILES_OF_12 = {64: (128, 128), 96: (128, 64), 128: (128, 64)}
"""As interface.py of flash-attn-4 4.0.0b36 has them for 99 KB of shared memory (359-365)."""


def _of_consumer_blackwell(arch: str, variant: Variant) -> Kernel | None:
    """Forward, dense, without windows and softcap: the rest is left to FlashAttention-2."""
    tiles = _TILES_OF_12.get(variant.head_dim)
    is_there = variant.kernel == "fwd" and variant.layout == "dense" and variant.mask != "local"
    if tiles is None or not is_there or variant.softcap or variant.long:
        return None
    job: dict[str, JobValue] = {
        "kernel": variant.kernel,
        "head_dim": variant.head_dim,
        "dtype": variant.dtype,
        "layout": variant.layout,
        "mask": variant.mask,
        "tile_m": tiles[0],
        "tile_n": tiles[1],
    }
    return Kernel(variant, arch, "/for_sm120.py", job, tiles)


_MADE: dict[int, Callable[[str, Variant], Kernel | None]] = {9: _of_hopper, 12: _of_consumer_blackwell}
