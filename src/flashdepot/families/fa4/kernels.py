"""The kernels of each architecture: how each is compiled, and what its launch must know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from flashdepot.families.fa4 import blackwell
from flashdepot.families.fa4.targets import SASS, code_for
from flashdepot.families.fa4.variants import JobValue, Variant, backward_variants, forward_variants
from flashdepot.model.architecture import Architecture

HOPPER = "90a"


class Kernel(msgspec.Struct, frozen=True):
    """A variant for an architecture.

    ``tiles`` are query rows and keys at a time. ``walks`` says whether its number of blocks is an argument, and
    ``shortest`` from which length on it is faster than its neighbour.
    """

    variant: Variant
    arch: str
    job: dict[str, JobValue]
    tiles: tuple[int, int]
    walks: bool = False
    shortest: int = 0


def _made(arch: str, variant: Variant) -> Kernel:
    if arch == HOPPER:
        return Kernel(variant, arch, variant.job(), variant.tiles, variant.walks, variant.shortest)
    return Kernel(variant, arch, *blackwell.made_of(arch, variant))


@cache
def passes() -> dict[str, tuple[str, Variant]]:
    """Every kernel that is a pass of attention by itself, by the name of its unit: architecture and variant."""
    variants = [v for v in (*forward_variants(), *backward_variants()) if v.is_pass]
    return {
        unit_name(arch, variant): (arch, variant)
        for arch in SASS.values()
        for variant in variants
        if arch == HOPPER or blackwell.is_made(arch, variant)
    }


def unit_name(arch: str, variant: Variant) -> str:
    """The variant's name, and of another GPU than Hopper its architecture before it."""
    return variant.name if arch == HOPPER else f"sm{arch}_{variant.name}"


def kernels_of(units: Iterable[str], gpus: Iterable[Architecture]) -> list[Kernel]:
    """The kernels that some units, by name, come to for GPUs: theirs, and what prepares and finishes for a backward pass."""
    chosen = [passes()[unit] for unit in units]
    codes = dict.fromkeys(map(code_for, gpus))
    return [kernel for code in codes for kernel in _with_helpers(code, [v for arch, v in chosen if arch == code])]


def _with_helpers(arch: str, chosen: Iterable[Variant]) -> Iterator[Kernel]:
    kernels = {variant: _made(arch, variant) for variant in chosen}
    for kernel in tuple(kernels.values()):
        kernels |= {helper: _made(arch, helper) for helper in _helpers(kernel) if helper not in kernels}
    yield from (kernels[variant] for variant in sorted(kernels))


def _helpers(kernel: Kernel) -> Iterator[Variant]:
    variant = kernel.variant
    if variant.kernel == "bwd":
        shared = (variant.head_dim, variant.dtype, variant.layout)
        yield Variant("pre", *shared, tile_m=kernel.tiles[0])
        yield Variant("dq", *shared, tile_m=kernel.tiles[0])
        if variant.several_heads:
            yield Variant("dkv", *shared)
