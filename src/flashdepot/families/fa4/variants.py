"""The kernels of FlashAttention-4 that one library may hold: each a unit, with a name that says what it does."""

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec
from msgspec.structs import asdict

from flashdepot.families.fa4.tiles import BackwardTiles, ForwardTiles, backward_tiles, forward_tiles, long_from

Kernel = Literal["fwd", "bwd", "pre", "dq", "dkv"]
Mask = Literal["full", "causal", "local"]
Layout = Literal["dense", "packed", "used", "paged"]
JobValue = str | int | bool

HEAD_DIMS = (64, 96, 128, 192, 256)
DTYPES = ("bf16", "fp16")
MASKS: tuple[Mask, ...] = get_args(Mask)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
NOT_PAGED = frozenset({96})
"""Head dims without a kernel for pages. At 96 upstream's copy takes 32 rows at a time, and the tile for full attention has
144 keys: the last copy writes past the tile. Answers were wrong on an H200."""
BACKWARD_LAYOUTS: tuple[Layout, ...] = ("dense", "packed")


class Variant(msgspec.Struct, frozen=True, order=True):
    """A kernel, and which problems it runs.

    fwd and bwd are the passes. pre prepares bwd's statistics, dq and dkv turn its float32 sums into gradients; these
    three depend on bwd's tile_m, and on nothing else of its mask. dkv runs only after a bwd with several_heads.
    """

    kernel: Kernel
    head_dim: int
    dtype: str
    layout: Layout
    mask: Mask = "full"
    softcap: bool = False
    several_heads: bool = False
    tile_m: int = 0
    long: bool = False
    """Of fwd: for sequences from ``shortest`` on, beside the one for shorter ones."""

    @property
    def name(self) -> str:
        """fwd_d128_bf16_packed_causal_softcap, bwd_d128_bf16_dense_full_gqa, pre_d128_bf16_dense_m80, .."""
        if self.is_pass:
            more = {"softcap": self.softcap, "gqa": self.several_heads, "long": self.long}
            tail = [self.mask, *(name for name, is_so in more.items() if is_so)]
        else:
            tail = [f"m{self.tile_m}"] if self.tile_m else []
        return "_".join([self.kernel, f"d{self.head_dim}", self.dtype, self.layout, *tail])

    @property
    def is_pass(self) -> bool:
        """Whether it is a pass of attention by itself, which others prepare and finish for."""
        return self.kernel in ("fwd", "bwd")

    def job(self) -> dict[str, JobValue]:
        """What the compile worker is told of the kernel, see worker/__main__.py."""
        job: dict[str, JobValue] = {
            "kernel": "post" if self.kernel in ("dq", "dkv") else self.kernel,
            "head_dim": self.head_dim,
            "dtype": self.dtype,
            "layout": self.layout,
        }
        return job | self._particulars()

    @property
    def tiles(self) -> tuple[int, int]:
        """(query rows, keys) that the kernel works on at a time; 0 where it does not matter to its caller."""
        if self.kernel == "fwd":
            forward = self._forward_tiles()
            return forward.tile_m, forward.tile_n
        backward = self._backward_tiles()
        return (0 if self.kernel == "dkv" else backward.tile_m), backward.tile_n

    @property
    def walks(self) -> bool:
        """Whether the number of its blocks is an argument, see ForwardTiles."""
        return self.kernel == "fwd" and self._forward_tiles().walks

    @property
    def shortest(self) -> int:
        """The length from which it is faster than its neighbour for shorter sequences; 0 where it is that itself."""
        return long_from(self.head_dim, self.mask, self.layout) if self.long else 0

    def _forward_tiles(self) -> ForwardTiles:
        return forward_tiles(self.head_dim, self.mask, self.layout, long=self.long)

    def _backward_tiles(self) -> BackwardTiles:
        if self.kernel in ("bwd", "dkv"):
            return backward_tiles(self.head_dim, self.mask)
        found = [tiles for mask in MASKS if (tiles := backward_tiles(self.head_dim, mask)).tile_m == self.tile_m]
        return found[0]

    def _particulars(self) -> dict[str, JobValue]:
        if self.kernel == "fwd":
            return {"mask": self.mask, "softcap": self.softcap, **asdict(self._forward_tiles())}
        tiles = self._backward_tiles()
        if self.kernel == "bwd":
            kind = {"mask": self.mask, "softcap": self.softcap, "several_heads": self.several_heads}
            return kind | asdict(tiles)
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


def layouts_of(head_dim: int) -> tuple[Layout, ...]:
    """The layouts that there are forward kernels of a head dim for."""
    return tuple(layout for layout in LAYOUTS if layout != "paged" or head_dim not in NOT_PAGED)


def forward_variants() -> Iterator[Variant]:
    """All forward kernels for Hopper."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for layout in layouts_of(head_dim):
                for mask in MASKS:
                    for softcap in (False, True):
                        yield Variant("fwd", head_dim, dtype, layout, mask, softcap)
                        if long_from(head_dim, mask, layout):
                            yield Variant("fwd", head_dim, dtype, layout, mask, softcap, long=True)


def backward_variants() -> Iterator[Variant]:
    """All kernels of the backward pass for Hopper."""
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES:
            for layout in BACKWARD_LAYOUTS:
                for mask in MASKS:
                    for softcap in (False, True):
                        for several_heads in (False, True):
                            yield Variant("bwd", head_dim, dtype, layout, mask, softcap, several_heads)
                for tile_m in sorted({backward_tiles(head_dim, mask).tile_m for mask in MASKS}):
                    yield Variant("pre", head_dim, dtype, layout, tile_m=tile_m)
                    yield Variant("dq", head_dim, dtype, layout, tile_m=tile_m)
                yield Variant("dkv", head_dim, dtype, layout)
