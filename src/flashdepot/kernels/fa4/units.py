"""FlashAttention-4's kernels of each architecture as units, and what each is expected to cost.

Units are the kernels of a pass. They bring those that they need next to them. Tiles for Blackwell are from interface.py
of flash-attn-4 4.0.0b36, whose lines are named; none has run on such a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from flashdepot.kernels.fa4.variants import JobValue, Variant, backward_variants, forward_variants, whole_variants
from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture

NAME = "fa4"

HOPPER = "90a"

SASS = {
    Architecture(9, 0): "90a",
    Architecture(10, 0): "100f",
    Architecture(11, 0): "110f",
    Architecture(12, 0): "120f",
}
"""The architectures that there are kernels for, each with the name that CuTe compiles for. What is compiled for 100f runs on
10.3 too, and for 120f on 12.1."""

TESTED = frozenset({Architecture(9, 0)})
"""Those on which the kernels were tested (benchmarks/fa4.md)."""

PYTHONS = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
"""The versions of CPython that CuTe DSL is published for, see ``toolchain/cute_dsl_wheels.toml``."""

HOSTS = {
    "linux-x86_64": ("x86_64-unknown-linux-gnu", "x86-64-v2"),
    "linux-aarch64": ("aarch64-unknown-linux-gnu", "generic"),
    "windows-x86_64": ("x86_64-unknown-windows-gnu", "x86-64-v2"),
}
"""The systems that CuTe DSL is published for, each with triple and oldest CPU of the launch code."""

_CONSUMER_TILES = {64: (128, 128), 96: (128, 64), 128: (128, 64)}
"""For 99 KB of shared memory (359-365)."""

_DATACENTER_FORWARD = {64: 2, 96: 2, 128: 2, 256: 1}
"""How many tiles of 128 query rows a block has: two of head dim 256 are more than tensor memory (387-391)."""

_DATACENTER_BACKWARD = frozenset({64, 96, 128})
"""At 256 upstream has kernels of another form, which write dq themselves."""

_ROWS, _KEYS = 128, 128


def code_for(gpu: Architecture) -> str:
    """What a GPU of a compute capability runs, of :data:`SASS`; empty where there is nothing."""
    return next((code for code in SASS.values() if Architecture.parse(code).runs_on(gpu)), "")


def is_made(arch: str, variant: Variant) -> bool:
    """Whether there is a kernel of a variant for an architecture, 100f, 110f or 120f."""
    if variant.long or variant.half or variant.narrow_v or variant.layout == "paged_packed":
        return False
    if variant.kernel == "fwd" and variant.several_heads:
        return False
    if arch.startswith("12"):
        return variant.kernel == "fwd" and variant.layout != "paged" and variant.head_dim in _CONSUMER_TILES
    return variant.head_dim in (_DATACENTER_FORWARD if variant.kernel == "fwd" else _DATACENTER_BACKWARD)


class Kernel(msgspec.Struct, frozen=True):
    """A variant for an architecture.

    ``tiles`` are query rows and keys at a time. ``blocks`` is how many of its blocks an SM has, where that is an argument,
    ``shortest`` from which length on it is faster than its neighbour, ``percent`` what a row costs by half tiles, and
    ``most_rows`` the longest sequences that those are for.
    """

    variant: Variant
    arch: str
    job: dict[str, JobValue]
    tiles: tuple[int, int]
    blocks: int = 0
    shortest: int = 0
    percent: int = 0
    most_rows: int = 0


def _made(arch: str, variant: Variant) -> Kernel:
    if arch == HOPPER:
        chosen_by = (variant.blocks, variant.shortest, variant.percent, variant.most_rows)
        return Kernel(variant, arch, variant.job(), variant.tiles, *chosen_by)
    job: dict[str, JobValue] = {
        "kernel": variant.kernel,
        "head_dim": variant.head_dim,
        "dtype": variant.dtype,
        "layout": variant.layout,
        "mask": variant.mask,
    }
    tiles, walks = (_ROWS, _KEYS), False
    if arch.startswith("12"):
        tiles = _CONSUMER_TILES[variant.head_dim]
        job |= {"softcap": variant.softcap, "tile_m": tiles[0], "tile_n": tiles[1]}
    elif variant.kernel == "fwd":
        q_tiles = _DATACENTER_FORWARD[variant.head_dim]
        tiles = (_ROWS * q_tiles, _KEYS)
        walks = variant.mask == "full" and variant.layout != "packed"
        # Two products with keys are in tensor memory in turn, where there is one tile of rows (1435-1454).
        in_turn = q_tiles == 1 and not variant.softcap and variant.layout != "paged"
        job |= {"softcap": variant.softcap, "tile_m": _ROWS, "tile_n": _KEYS}
        job |= {"q_tiles": q_tiles, "s_in_turn": in_turn, "walks": walks}
    elif variant.kernel == "bwd":
        job |= {"softcap": variant.softcap, "several_heads": variant.several_heads, "tile_m": _ROWS, "tile_n": _KEYS}
    elif variant.kernel == "pre":
        job |= {"tile_m": _ROWS, "hdim_multiple": 32}
    elif variant.kernel == "dq":
        job |= {"kernel": "post", "tile": _ROWS}
    else:
        job |= {"kernel": "post", "tile": _KEYS}
    return Kernel(variant, arch, job, tiles, int(walks))


@cache
def passes() -> dict[str, tuple[str, Variant]]:
    """Every kernel that is a pass of attention by itself, by the name of its unit: architecture and variant."""
    variants = [v for v in (*forward_variants(), *backward_variants()) if v.is_pass]
    return {
        unit_name(arch, variant): (arch, variant)
        for arch in SASS.values()
        for variant in variants
        if arch == HOPPER or is_made(arch, variant)
    }


def unit_name(arch: str, variant: Variant) -> str:
    """The variant's name, and of another GPU than Hopper its architecture before it."""
    return variant.name if arch == HOPPER else f"sm{arch}_{variant.name}"


def kernels_of(units: Iterable[str], gpus: Iterable[Architecture]) -> list[Kernel]:
    """The kernels of some units, by name, for GPUs: theirs, and what prepares and finishes for a backward pass."""
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
        if kernel.arch == HOPPER and variant.mask != "local" and not variant.softcap:
            yield from whole_variants(*shared, variant.mask)
        if variant.several_heads and not variant.grouped:
            yield Variant("dkv", *shared)


_PASSES = {"fwd": Pass.FWD, "bwd": Pass.BWD}


def unit_of(variant: Variant, arch: str = HOPPER) -> Unit:
    """The unit of a kernel that is a pass of attention by itself."""
    features = ((Feature.SOFTCAP, variant.softcap), (Feature.LOCAL, variant.mask == "local"))
    return Unit(
        NAME,
        _PASSES[variant.kernel],
        variant.head_dim,
        Dtype(variant.dtype),
        variant.mask == "causal",
        unit_name(arch, variant),
        frozenset(feature for feature, needed in features if needed),
    )


@cache
def units() -> frozenset[Unit]:
    """Every unit, each for the GPUs of one architecture."""
    return frozenset(unit_of(variant, arch) for arch, variant in passes().values())


_HOPPER_SECONDS = {Pass.FWD: 3.5, Pass.BWD: 2.0}
"""Mean CPU-seconds of 89 forward and 38 backward kernels for sm_90a, on two busy cores (2026-11)."""

_BLACKWELL_SECONDS = {Pass.FWD: 5.4, Pass.BWD: 4.6}
"""Mean CPU-seconds of 10 forward and 54 backward kernels for sm_100f and sm_110f, the same."""

_IMPORTS = 0.9
"""CPU-seconds that each run of the worker takes before it compiles."""

_PEAK = 470 << 20
"""Bytes: the most that a worker held after 120 of them."""


def estimate(unit: Unit) -> Estimate:
    """The shipped expectation for a unit, which is compiled for one architecture."""
    arch, _ = passes()[unit.name]
    seconds = _HOPPER_SECONDS if arch == HOPPER else _BLACKWELL_SECONDS
    return Estimate(seconds[unit.pass_] + _IMPORTS, _PEAK)
