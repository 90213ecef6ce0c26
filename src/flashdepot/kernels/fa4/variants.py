"""The kernels of FlashAttention-4 that one library may hold, each with a name that says what it does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import msgspec
from msgspec.structs import asdict

from flashdepot.kernels.fa4.tiles import (
    BACKWARD_HALF,
    COST,
    COST_EXCEPTIONS,
    COST_LONG,
    COST_TOGETHER,
    GROUPED,
    HALF,
    LONG,
    MOST_ROWS,
    MOST_ROWS_FORWARD,
    WHOLE,
    BackwardTiles,
    ForwardTiles,
    backward_tiles,
    forward_tiles,
    long_from,
)

Kernel = Literal["fwd", "bwd", "whole", "pre", "dq", "dkv"]
Mask = Literal["full", "causal", "local"]
Layout = Literal["dense", "packed", "used", "paged", "paged_packed"]
JobValue = str | int | bool

HEAD_DIMS = (64, 96, 128, 192, 256)
DTYPES = ("bf16", "fp16")
MASKS: tuple[Mask, ...] = get_args(Mask)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
NOT_PAGED = frozenset({96})
"""Head dims without a kernel for pages. At 96 upstream's copy takes 32 rows at a time, and the tile for full attention has
144 keys: the last copy writes past the tile. Answers were wrong on an H200."""
NARROW_V = {192: 128}
"""Head dims with forward kernels for a smaller head dim of v: DeepSeek's."""
BACKWARD_LAYOUTS: tuple[Layout, ...] = ("dense", "packed")


class Variant(msgspec.Struct, frozen=True, order=True):
    """A kernel, and which problems it runs.

    fwd and bwd are the passes. pre prepares bwd's statistics, dq and dkv turn its float32 sums into gradients; these
    three depend on bwd's tile_m, and on nothing else of its mask. A bwd with several_heads has a block for each query head, and
    dkv runs only after it: it is for too few blocks of the one that goes through all query heads of its keys. whole does
    by itself what all of them do, for sequences of up to as many keys as its tile has.
    """

    kernel: Kernel
    head_dim: int
    dtype: str
    layout: Layout
    mask: Mask = "full"
    softcap: bool = False
    several_heads: bool = False
    """Of bwd: for several query heads a key head. Of fwd: with these as rows of one tile, next to the one without."""
    tile_m: int = 0
    tile_n: int = 0
    """Of whole: the most keys of a sequence."""
    long: bool = False
    """Of fwd: for sequences from ``shortest`` on, or of these where it costs less, next to the one for shorter ones."""
    half: bool = False
    """With tiles of half as many rows, next to the one for full tiles."""
    narrow_v: bool = False
    """Of fwd: for head dims of v up to :data:`NARROW_V`, next to the one for those up to head_dim."""

    @property
    def name(self) -> str:
        """fwd_d128_bf16_packed_causal_softcap, bwd_d128_bf16_dense_full_gqa, pre_d128_bf16_dense_m80, .."""
        if self.kernel == "whole":
            tail = [self.mask, f"n{self.tile_n}"]
        elif self.is_pass:
            more = {"softcap": self.softcap, "gqa": self.several_heads, "long": self.long, "half": self.half}
            tail = [self.mask, *(name for name, is_so in more.items() if is_so)]
        else:
            tail = [f"m{self.tile_m}"] if self.tile_m else []
        head_dims = f"d{self.head_dim}" + (f"v{self.head_dim_v}" if self.narrow_v else "")
        return "_".join([self.kernel, head_dims, self.dtype, self.layout, *tail])

    @property
    def head_dim_v(self) -> int:
        """The largest head dim of v."""
        return NARROW_V[self.head_dim] if self.narrow_v else self.head_dim

    @property
    def is_pass(self) -> bool:
        """Whether it is a pass of attention by itself, which others prepare and finish for."""
        return self.kernel in ("fwd", "bwd")

    def job(self) -> dict[str, JobValue]:
        """What the compile worker is given of the kernel, see worker/__main__.py."""
        job: dict[str, JobValue] = {
            "kernel": "post" if self.kernel in ("dq", "dkv") else self.kernel,
            "head_dim": self.head_dim,
            "dtype": self.dtype,
            "layout": self.layout,
        }
        return job | self._particulars()

    @property
    def tiles(self) -> tuple[int, int]:
        """(query rows, keys) that the kernel works on at a time; of dkv and whole twice its keys."""
        if self.kernel == "fwd":
            forward = self._forward_tiles()
            return forward.tile_m, forward.tile_n
        if self.kernel == "whole":
            return self.tile_n, self.tile_n
        backward = self._backward_tiles()
        return (backward.tile_n if self.kernel == "dkv" else backward.tile_m), backward.tile_n

    @property
    def grouped(self) -> bool:
        """Whether a block of a bwd goes through the rows of all query heads of its keys, see worker/grouped.py."""
        return self.kernel == "bwd" and (self.half if self.several_heads else self.head_dim in GROUPED)

    @property
    def blocks(self) -> int:
        """How many of its blocks an SM has, where that is an argument, see ForwardTiles; else 0."""
        tiles = self._forward_tiles() if self.kernel == "fwd" else None
        return tiles.blocks if tiles and tiles.walks else 0

    @property
    def percent(self) -> int:
        """What a query row costs by tiles that are chosen by it, see ``COST``; 0 by others."""
        if self.kernel == "fwd" and self.several_heads:
            return COST_TOGETHER[self.layout, self.mask][self.head_dim]
        if self.kernel == "fwd" and self.long:
            return COST_LONG.get((self.layout, self.head_dim, self.mask), 0)
        if not self.half or not self.is_pass:
            return 0
        cost = COST["grouped" if self.grouped else self.kernel][self.head_dim]
        return COST_EXCEPTIONS.get((self.kernel, self.head_dim, self.layout, self.mask), cost)

    @property
    def shortest(self) -> int:
        """The length from which it is faster than its neighbour for shorter sequences; 0 where it is that itself."""
        return long_from(self.head_dim, self.mask, self.layout) if self.long else 0

    @property
    def most_rows(self) -> int:
        """The longest sequences that its tiles are for, where it has a ``percent``; else 0."""
        if not self.percent:
            return 0
        if not self.half:
            return 2**31 - 1
        return MOST_ROWS_FORWARD.get((self.head_dim, self.mask), MOST_ROWS) if self.kernel == "fwd" else MOST_ROWS

    def _forward_tiles(self) -> ForwardTiles:
        if self.narrow_v:
            return ForwardTiles(128, 96 if self.mask == "local" else 128)
        kind = {"long": self.long, "half": self.half, "together": self.several_heads}
        return forward_tiles(self.head_dim, self.mask, self.layout, **kind)

    def _backward_tiles(self) -> BackwardTiles:
        if self.kernel in ("bwd", "dkv"):
            return backward_tiles(self.head_dim, half=self.half)
        full = backward_tiles(self.head_dim)
        return full if full.tile_m == self.tile_m else backward_tiles(self.head_dim, half=True)

    def _particulars(self) -> dict[str, JobValue]:
        if self.kernel == "fwd":
            kind = {"mask": self.mask, "softcap": self.softcap, "head_dim_v": self.head_dim_v}
            return kind | {"several_heads": self.several_heads} | asdict(self._forward_tiles())
        if self.kernel == "whole":
            one = next(tiles for tiles in WHOLE[self.head_dim] if tiles.tile_n == self.tile_n)
            return {"mask": self.mask} | asdict(one)
        tiles = self._backward_tiles()
        if self.kernel == "bwd":
            kind = {
                "mask": self.mask,
                "softcap": self.softcap,
                "several_heads": self.several_heads and not self.grouped,
            }
            return kind | {"grouped": self.grouped} | asdict(tiles)
        if self.kernel == "pre":
            return {"tile_m": tiles.tile_m, "hdim_multiple": tiles.hdim_multiple}
        of_queries = self.kernel == "dq"
        return {
            "tile": tiles.tile_m if of_queries else tiles.tile_n,
            "threads": tiles.query_threads if of_queries else 256,
            "atoms": tiles.atoms_dq if of_queries else tiles.atoms_dkv,
            "swap": tiles.swap_dq if of_queries else tiles.swap_dkv,
            "hdim_multiple": tiles.hdim_multiple,
        }


def forward_variants() -> Iterator[Variant]:
    """All forward kernels for Hopper."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for layout in LAYOUTS:
                if layout.startswith("paged") and head_dim in NOT_PAGED:
                    continue
                for mask in MASKS:
                    for softcap in (False, True):
                        yield Variant("fwd", head_dim, dtype, layout, mask, softcap)
                        if long_from(head_dim, mask, layout):
                            yield Variant("fwd", head_dim, dtype, layout, mask, softcap, long=True)
                    if head_dim in HALF and layout in LONG and mask != "local":
                        yield Variant("fwd", head_dim, dtype, layout, mask, half=True)
                    if head_dim in COST_TOGETHER.get((layout, mask), {}):
                        yield Variant("fwd", head_dim, dtype, layout, mask, several_heads=True)
                    if head_dim in NARROW_V and layout in ("dense", "packed", "used"):
                        yield Variant("fwd", head_dim, dtype, layout, mask, narrow_v=True)


def whole_variants(head_dim: int, dtype: str, layout: Layout, mask: Mask) -> Iterator[Variant]:
    """The kernels for Hopper that do all of a backward pass without windows and softcap, over keys that are one tile."""
    for tiles in WHOLE[head_dim]:
        yield Variant("whole", head_dim, dtype, layout, mask, tile_n=tiles.tile_n)


def backward_variants() -> Iterator[Variant]:
    """All kernels of the backward pass for Hopper."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for layout in BACKWARD_LAYOUTS:
                for mask, several_heads in product(MASKS, (False, True)):
                    for softcap in (False, True):
                        yield Variant("bwd", head_dim, dtype, layout, mask, softcap, several_heads)
                    if mask != "local" and head_dim in BACKWARD_HALF:
                        yield Variant("bwd", head_dim, dtype, layout, mask, several_heads=several_heads, half=True)
                    if mask != "local" and not several_heads:
                        yield from whole_variants(head_dim, dtype, layout, mask)
                yield Variant("dkv", head_dim, dtype, layout)
                for half in (False, True) if head_dim in BACKWARD_HALF else (False,):
                    tile_m = backward_tiles(head_dim, half=half).tile_m
                    yield Variant("pre", head_dim, dtype, layout, tile_m=tile_m)
                    yield Variant("dq", head_dim, dtype, layout, tile_m=tile_m)
