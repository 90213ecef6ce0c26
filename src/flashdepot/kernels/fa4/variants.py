"""The kernels of FlashAttention-4 that one library may hold, each with a name that says what it does.

Tiles are from interface.py of flash-attn-4 4.0.0b36: _tile_size_fwd_sm90 (151-183) and _tile_size_bwd_sm90 (216-291),
there tuned on an H100 SXM. Forward tiles of dense sequences, and backward ones at 128, are those that were fastest on
an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import msgspec
from msgspec.structs import asdict


class ForwardTiles(msgspec.Struct, frozen=True):
    """tile_m query rows and tile_n keys at a time."""

    tile_m: int
    tile_n: int
    p_in_registers: bool = True  # the probabilities, between the two products
    overlap: bool = True  # of a block's softmax with the next block's first product
    stages: int = 2
    walks: bool = False  # a block of threads takes tile after tile, instead of one
    falling: bool = False  # of unequal tiles the longest first, instead of a head's last with its first
    o_apart: bool = False  # o has shared memory of its own; without it the next q waits until o is stored
    blocks: int = 1  # that share an SM


class BackwardTiles(msgspec.Struct, frozen=True):
    """tile_n keys stay, tile_m query rows at a time pass by."""

    tile_m: int
    tile_n: int
    stages_q: int = 2
    stages_do: int = 2
    stages_pds: int = 2
    swap_sdp: bool = True  # which operand of a product is in WGMMA's rows
    swap_dkv: bool = False
    swap_dq: bool = False
    atoms_sdp: int = 1
    atoms_dkv: int = 2
    atoms_dq: int = 1
    dq_in_one_warp_group: bool = False
    dq_at_once: bool = False  # added to its sum from registers, without shared memory in between
    blocks: int = 1  # that share an SM

    @property
    def hdim_multiple(self) -> int:
        """What the head dim of the float32 sums is rounded up to."""
        return 64 if self.swap_dkv else 32

    @property
    def query_threads(self) -> int:
        """Threads that turn the sum of dq into dq: as many as held it."""
        return 128 if self.dq_in_one_warp_group else 256


class WholeTiles(msgspec.Struct, frozen=True):
    """tile_n keys, which are all that a sequence has; 64 query rows at a time pass by."""

    tile_n: int
    stages_do: int = 2
    swap_dkv: bool = False  # as of BackwardTiles
    atoms_dkv: int = 2
    parts: int = 1  # of dq, of which a thread has one after the other
    blocks: int = 1  # that share an SM


_FORWARD = {
    64: ForwardTiles(192, 128),
    96: ForwardTiles(192, 128, p_in_registers=False),
    128: ForwardTiles(128, 128),
    192: ForwardTiles(128, 112),
    256: ForwardTiles(128, 80),
}
_FORWARD_EXCEPTIONS = {
    (96, "full"): ForwardTiles(192, 144, p_in_registers=False),
    (192, "local"): ForwardTiles(128, 96),
    (256, "local"): ForwardTiles(128, 64),
}
_SHORT = {
    64: ForwardTiles(128, 128, walks=True, o_apart=True),
    96: ForwardTiles(128, 128, walks=True, o_apart=True),
    128: ForwardTiles(128, 128, walks=True, o_apart=True),
    192: ForwardTiles(128, 80, walks=True, o_apart=True),
    256: ForwardTiles(128, 64, walks=True),
}
_SHORT_EXCEPTIONS = {("dense", 256, "full"): ForwardTiles(128, 48, walks=True, o_apart=True)}
"""The fastest on an H200 up to the length that another one is faster from, see _LONG."""
_HALF = {
    64: ForwardTiles(64, 64, walks=True, blocks=3),
    96: ForwardTiles(64, 64, walks=True, o_apart=True, blocks=2),
    128: ForwardTiles(64, 64, walks=True, o_apart=True, blocks=2),
    192: ForwardTiles(64, 48, walks=True, blocks=2),
    256: ForwardTiles(64, 64, walks=True, stages=1, blocks=2),
}
"""Tiles of 64 query rows, for short sequences, which fill those of 128 badly."""
_BACKWARD_HALF = {64: BackwardTiles(64, 64, swap_sdp=False, atoms_dkv=1, blocks=2)}
"""The same backward, of 64 keys too."""
_TOGETHER = {**_SHORT, 256: ForwardTiles(128, 80, walks=True)}
"""Tiles of which the rows are queries of all query heads of a key head, where those of one head fill tiles badly."""
_COST = {"fwd": {64: 95, 96: 98, 128: 95, 192: 120, 256: 113}, "bwd": {64: 112}, "grouped": {64: 72}}
_COST_EXCEPTIONS = {("fwd", 256, "dense", "causal"): 92}
"""What a row costs by half tiles, in percent of one by full ones, on an H200. grouped: backward, where full ones sum heads."""
_COST_TOGETHER = {
    ("dense", "full"): {64: 115, 96: 104, 128: 115, 192: 104, 256: 102},
    ("dense", "causal"): {192: 104, 256: 103},
    ("packed", "full"): {256: 102},
    ("packed", "causal"): {192: 106, 256: 110},
}
"""The same by tiles of several heads, of sequences of any length. Elsewhere they were hardly ever faster."""
_COST_LONG = {("dense", 96, "causal"): 97}
"""The same by tiles of _LONG that are not for every sequence from their length on."""
_MOST_ROWS = 448
_MOST_ROWS_FORWARD = {(64, "full"): 767, (64, "causal"): 1100}
"""Sequences that half tiles are for, by head dim and mask: from there on the last tile is a small part, or others are faster."""
_LONG = {
    "dense": {
        (64, "full"): (363, ForwardTiles(192, 128, walks=True, o_apart=True)),
        (64, "causal"): (1449, ForwardTiles(192, 128, walks=True, falling=True, o_apart=True)),
        (96, "full"): (1449, ForwardTiles(192, 128, p_in_registers=False, walks=True, o_apart=True)),
        (96, "causal"): (897, ForwardTiles(192, 128, p_in_registers=False, walks=True, falling=True, o_apart=True)),
        (128, "causal"): (1025, ForwardTiles(128, 128, walks=True, falling=True, o_apart=True)),
        (192, "full"): (2897, ForwardTiles(128, 112, walks=True)),
        (192, "causal"): (1449, ForwardTiles(128, 112, walks=True, falling=True)),
        (256, "full"): (449, ForwardTiles(128, 80)),
        (256, "causal"): (1449, ForwardTiles(128, 80)),
    },
    "packed": {
        (64, "full"): (363, ForwardTiles(192, 128, walks=True, o_apart=True)),
        (64, "causal"): (1101, ForwardTiles(192, 128)),
        (96, "full"): (363, ForwardTiles(192, 128, p_in_registers=False, walks=True, o_apart=True)),
        (96, "causal"): (1449, ForwardTiles(192, 128, p_in_registers=False)),
        (128, "causal"): (725, ForwardTiles(128, 128)),
        (192, "full"): (1449, ForwardTiles(128, 112, walks=True)),
        (192, "causal"): (1025, ForwardTiles(128, 112)),
        (192, "local"): (1449, ForwardTiles(128, 96)),
        (256, "full"): (363, ForwardTiles(128, 80, walks=True)),
        (256, "causal"): (1025, ForwardTiles(128, 80)),
        (256, "local"): (1449, ForwardTiles(128, 64)),
    },
}
"""By layout: the length from which other tiles were faster, and those. Of packed sequences it is the mean number of keys.
Lengths lie between two that were measured, by ratio (benchmarks/fa4.md)."""
_BACKWARD = {
    64: BackwardTiles(128, 128, atoms_dq=2),
    96: BackwardTiles(64, 128, dq_in_one_warp_group=True),
    128: BackwardTiles(64, 128),
    192: BackwardTiles(64, 96, stages_do=1, stages_pds=1, swap_sdp=False, swap_dkv=True),
    256: BackwardTiles(64, 80, stages_do=1, stages_pds=1, swap_sdp=False, swap_dkv=True, atoms_dkv=1, dq_at_once=True),
}

_WHOLE = {
    64: (WholeTiles(64, atoms_dkv=1, blocks=2), WholeTiles(128), WholeTiles(192, atoms_dkv=1)),
    96: (WholeTiles(128),),
    128: (WholeTiles(64, atoms_dkv=1), WholeTiles(128)),
    192: (WholeTiles(96, swap_dkv=True),),
    256: (WholeTiles(80, stages_do=1, swap_dkv=True, atoms_dkv=1, parts=2),),
}
"""The fewest keys first: the smallest tile that holds a sequence's is taken."""

_GROUPED = (96, 128, 192, 256)
"""Head dims whose backward kernels without several_heads go through all query heads of their keys: at 64 this took up to 1.3
times as long where each has its own. There kernels of half tiles with several_heads do."""


def forward_tiles(
    head_dim: int, mask: str, layout: str, *, long: bool = False, half: bool = False, together: bool = False
) -> ForwardTiles:
    """mask: full, causal or local. layout: dense, packed, used, paged or paged_packed. long, half, together: of which kernel.

    Where tiles take less time than what is between two of them, a persistent block loses less there.
    Tiles of many keys, and of different numbers of them, suit a block a tile: the GPU deals those out as SMs get free.
    """
    if half or together:
        return (_HALF if half else _TOGETHER)[head_dim]
    if layout not in _LONG:
        return _FORWARD_EXCEPTIONS.get((head_dim, mask), _FORWARD[head_dim])
    return (
        _LONG[layout][head_dim, mask][1] if long else _SHORT_EXCEPTIONS.get((layout, head_dim, mask), _SHORT[head_dim])
    )


def long_from(head_dim: int, mask: str, layout: str) -> int:
    """The shortest sequence that there is another forward kernel for, or 0 where there is none."""
    return _LONG.get(layout, {}).get((head_dim, mask), (0,))[0]


def backward_tiles(head_dim: int, *, half: bool = False) -> BackwardTiles:
    """half: of the kernel for short sequences."""
    return _BACKWARD_HALF[head_dim] if half else _BACKWARD[head_dim]


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
        return self.kernel == "bwd" and (self.half if self.several_heads else self.head_dim in _GROUPED)

    @property
    def blocks(self) -> int:
        """How many of its blocks an SM has, where that is an argument, see ForwardTiles; else 0."""
        tiles = self._forward_tiles() if self.kernel == "fwd" else None
        return tiles.blocks if tiles and tiles.walks else 0

    @property
    def percent(self) -> int:
        """What a query row costs by tiles that are chosen by it, see ``_COST``; 0 by others."""
        if self.kernel == "fwd" and self.several_heads:
            return _COST_TOGETHER[self.layout, self.mask][self.head_dim]
        if self.kernel == "fwd" and self.long:
            return _COST_LONG.get((self.layout, self.head_dim, self.mask), 0)
        if not self.half or not self.is_pass:
            return 0
        cost = _COST["grouped" if self.grouped else self.kernel][self.head_dim]
        return _COST_EXCEPTIONS.get((self.kernel, self.head_dim, self.layout, self.mask), cost)

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
        return _MOST_ROWS_FORWARD.get((self.head_dim, self.mask), _MOST_ROWS) if self.kernel == "fwd" else _MOST_ROWS

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
            one = next(tiles for tiles in _WHOLE[self.head_dim] if tiles.tile_n == self.tile_n)
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
                    if head_dim in _HALF and layout in _LONG and mask != "local":
                        yield Variant("fwd", head_dim, dtype, layout, mask, half=True)
                    if head_dim in _COST_TOGETHER.get((layout, mask), {}):
                        yield Variant("fwd", head_dim, dtype, layout, mask, several_heads=True)
                    if head_dim in NARROW_V and layout in ("dense", "packed", "used"):
                        yield Variant("fwd", head_dim, dtype, layout, mask, narrow_v=True)


def whole_variants(head_dim: int, dtype: str, layout: Layout, mask: Mask) -> Iterator[Variant]:
    """The kernels for Hopper that do all of a backward pass without windows and softcap, over keys that are one tile."""
    for tiles in _WHOLE[head_dim]:
        yield Variant("whole", head_dim, dtype, layout, mask, tile_n=tiles.tile_n)


def backward_variants() -> Iterator[Variant]:
    """All kernels of the backward pass for Hopper."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for layout in BACKWARD_LAYOUTS:
                for mask, several_heads in product(MASKS, (False, True)):
                    for softcap in (False, True):
                        yield Variant("bwd", head_dim, dtype, layout, mask, softcap, several_heads)
                    if mask != "local" and head_dim in _BACKWARD_HALF:
                        yield Variant("bwd", head_dim, dtype, layout, mask, several_heads=several_heads, half=True)
                    if mask != "local" and not several_heads:
                        yield from whole_variants(head_dim, dtype, layout, mask)
                yield Variant("dkv", head_dim, dtype, layout)
                for half in (False, True) if head_dim in _BACKWARD_HALF else (False,):
                    tile_m = backward_tiles(head_dim, half=half).tile_m
                    yield Variant("pre", head_dim, dtype, layout, tile_m=tile_m)
                    yield Variant("dq", head_dim, dtype, layout, tile_m=tile_m)
