"""Which tiles FlashAttention-4's kernels for Hopper have, and for which sequences each is the fastest.

Tiles are from interface.py of flash-attn-4 4.0.0b36: _tile_size_fwd_sm90 (151-183) and _tile_size_bwd_sm90 (216-291),
there tuned on an H100 SXM. Forward tiles of dense sequences, and backward ones at 128, are those that were fastest on
an H200.
"""

from __future__ import annotations

import msgspec


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
"""The fastest on an H200 up to the length that another one is faster from, see LONG."""
HALF = {
    64: ForwardTiles(64, 64, walks=True, blocks=3),
    96: ForwardTiles(64, 64, walks=True, o_apart=True, blocks=2),
    128: ForwardTiles(64, 64, walks=True, o_apart=True, blocks=2),
    192: ForwardTiles(64, 48, walks=True, blocks=2),
    256: ForwardTiles(64, 64, walks=True, stages=1, blocks=2),
}
"""Tiles of 64 query rows, for short sequences, which fill those of 128 badly."""
BACKWARD_HALF = {64: BackwardTiles(64, 64, swap_sdp=False, atoms_dkv=1, blocks=2)}
"""The same backward, of 64 keys too."""
_TOGETHER = {**_SHORT, 256: ForwardTiles(128, 80, walks=True)}
"""Tiles of which the rows are queries of all query heads of a key head, where those of one head fill tiles badly."""
COST = {"fwd": {64: 95, 96: 98, 128: 95, 192: 120, 256: 113}, "bwd": {64: 112}, "grouped": {64: 72}}
COST_EXCEPTIONS = {("fwd", 256, "dense", "causal"): 92}
"""What a row costs by half tiles, in percent of one by full ones, on an H200. grouped: backward, where full ones sum heads."""
COST_TOGETHER = {
    ("dense", "full"): {64: 115, 96: 104, 128: 115, 192: 104, 256: 102},
    ("dense", "causal"): {192: 104, 256: 103},
    ("packed", "full"): {256: 102},
    ("packed", "causal"): {192: 106, 256: 110},
}
"""The same by tiles of several heads, of sequences of any length. Elsewhere they were hardly ever faster."""
COST_LONG = {("dense", 96, "full"): 94, ("dense", 96, "causal"): 97}
"""The same by tiles of LONG that are not for every sequence from their length on."""
MOST_ROWS = 448
MOST_ROWS_FORWARD = {(64, "full"): 767, (64, "causal"): 1100}
"""Sequences that half tiles are for, by head dim and mask: from there on the last tile is a small part, or others are faster."""
LONG = {
    "dense": {
        (64, "full"): (363, ForwardTiles(192, 128, walks=True, o_apart=True)),
        (64, "causal"): (1449, ForwardTiles(192, 128, walks=True, falling=True, o_apart=True)),
        (96, "full"): (769, ForwardTiles(192, 128, p_in_registers=False, walks=True, o_apart=True)),
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
        (128, "causal"): (1449, ForwardTiles(128, 128)),
        (192, "full"): (1449, ForwardTiles(128, 112, walks=True)),
        (192, "causal"): (1025, ForwardTiles(128, 112)),
        (192, "local"): (1449, ForwardTiles(128, 96)),
        (256, "full"): (363, ForwardTiles(128, 80, walks=True)),
        (256, "causal"): (1025, ForwardTiles(128, 80)),
        (256, "local"): (1449, ForwardTiles(128, 64)),
    },
}
"""By layout: the length from which other tiles were faster, and those. Of packed sequences it is the mean number of keys, by a causal mask half of the longest's at most.
Lengths lie between two that were measured, by ratio (benchmarks/fa4.md)."""
_BACKWARD = {
    64: BackwardTiles(128, 128, atoms_dq=2),
    96: BackwardTiles(64, 128, dq_in_one_warp_group=True),
    128: BackwardTiles(64, 128),
    192: BackwardTiles(64, 96, stages_do=1, stages_pds=1, swap_sdp=False, swap_dkv=True),
    256: BackwardTiles(64, 80, stages_do=1, stages_pds=1, swap_sdp=False, swap_dkv=True, atoms_dkv=1, dq_at_once=True),
}

WHOLE = {
    64: (WholeTiles(64, atoms_dkv=1, blocks=2), WholeTiles(128), WholeTiles(192, atoms_dkv=1)),
    96: (WholeTiles(128),),
    128: (WholeTiles(64, atoms_dkv=1), WholeTiles(128)),
    192: (WholeTiles(96, swap_dkv=True),),
    256: (WholeTiles(80, stages_do=1, swap_dkv=True, atoms_dkv=1, parts=2),),
}
"""The fewest keys first: the smallest tile that holds a sequence's is taken."""

GROUPED = (96, 128, 192, 256)
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
        return (HALF if half else _TOGETHER)[head_dim]
    if layout not in LONG:
        return _FORWARD_EXCEPTIONS.get((head_dim, mask), _FORWARD[head_dim])
    return (
        LONG[layout][head_dim, mask][1] if long else _SHORT_EXCEPTIONS.get((layout, head_dim, mask), _SHORT[head_dim])
    )


def long_from(head_dim: int, mask: str, layout: str) -> int:
    """The shortest sequence that there is another forward kernel for, or 0 where there is none."""
    return LONG.get(layout, {}).get((head_dim, mask), (0,))[0]


def backward_tiles(head_dim: int, *, half: bool = False) -> BackwardTiles:
    """half: of the kernel for short sequences."""
    return BACKWARD_HALF[head_dim] if half else _BACKWARD[head_dim]
