"""How Hopper's kernels of each head dim are tiled, and what else upstream fixes with it.

From interface.py of flash-attn-4 4.0.0b36: _tile_size_fwd_sm90 (151-183) and _tile_size_bwd_sm90 (216-291), there tuned
on an H100 SXM. Forward tiles of dense sequences, and backward ones at 128, are those that were fastest on an H200.
"""

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


class BackwardTiles(msgspec.Struct, frozen=True):
    """tile_n keys stay, tile_m query rows at a time pass by."""

    tile_m: int
    tile_n: int
    stages_q: int = 2
    stages_do: int = 2
    stages_pds: int = 2
    swap_sdp: bool = True  # which operand of a product lies in WGMMA's rows
    swap_dkv: bool = False
    swap_dq: bool = False
    atoms_sdp: int = 1
    atoms_dkv: int = 2
    atoms_dq: int = 1
    dq_in_one_warp_group: bool = False

    @property
    def hdim_multiple(self) -> int:
        """What the head dim of the float32 sums is rounded up to."""
        return 64 if self.swap_dkv else 32

    @property
    def query_threads(self) -> int:
        """Threads that turn the sum of dq into dq: as many as held it."""
        return 128 if self.dq_in_one_warp_group else 256


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
"""The fastest on an H200 up to the length that another one is faster from, see _LONG."""
_LONG = {
    "dense": {
        (64, "full"): (363, ForwardTiles(192, 128, walks=True, o_apart=True)),
        (64, "causal"): (1449, ForwardTiles(192, 128, walks=True, falling=True, o_apart=True)),
        (96, "full"): (1449, ForwardTiles(192, 128, p_in_registers=False, walks=True, o_apart=True)),
        (96, "causal"): (2897, ForwardTiles(192, 128, p_in_registers=False)),
        (128, "causal"): (11586, ForwardTiles(128, 128)),
        (192, "full"): (2897, ForwardTiles(128, 112, walks=True)),
        (192, "causal"): (5793, ForwardTiles(128, 112)),
        (256, "full"): (725, ForwardTiles(128, 80)),
        (256, "causal"): (1449, ForwardTiles(128, 80)),
    },
    "packed": {
        (64, "full"): (363, ForwardTiles(192, 128, walks=True, o_apart=True)),
        (64, "causal"): (2897, ForwardTiles(192, 128)),
        (96, "full"): (363, ForwardTiles(192, 128, p_in_registers=False, walks=True, o_apart=True)),
        (96, "causal"): (725, ForwardTiles(192, 128, p_in_registers=False)),
        (128, "causal"): (725, ForwardTiles(128, 128)),
        (192, "full"): (1449, ForwardTiles(128, 112, walks=True)),
        (192, "causal"): (725, ForwardTiles(128, 112)),
        (192, "local"): (1449, ForwardTiles(128, 96)),
        (256, "full"): (363, ForwardTiles(128, 80, walks=True)),
        (256, "causal"): (725, ForwardTiles(128, 80)),
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
    256: BackwardTiles(64, 48, stages_do=1, stages_pds=1, swap_sdp=False, swap_dkv=True, atoms_dkv=1),
}


def forward_tiles(head_dim: int, mask: str, layout: str, *, long: bool = False) -> ForwardTiles:
    """mask: full, causal or local. layout: dense, packed, used or paged. long: of the kernel for long sequences.

    Where tiles take less time than what lies between two of them, a block that walks from one to the next loses less there.
    Tiles of many keys, and of different numbers of them, suit a block a tile: the GPU deals those out as SMs get free.
    """
    if layout not in _LONG:
        return _FORWARD_EXCEPTIONS.get((head_dim, mask), _FORWARD[head_dim])
    return _LONG[layout][head_dim, mask][1] if long else _SHORT[head_dim]


def long_from(head_dim: int, mask: str, layout: str) -> int:
    """The shortest sequence that there is another forward kernel for, or 0 where there is none."""
    return _LONG.get(layout, {}).get((head_dim, mask), (0,))[0]


def backward_tiles(head_dim: int, mask: str) -> BackwardTiles:  # noqa: ARG001  (one was fastest for each so far)
    """mask: full, causal or local."""
    return _BACKWARD[head_dim]
