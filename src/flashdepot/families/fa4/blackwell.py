"""The kernels for Blackwell: which there are, and how each is tiled.

From interface.py of flash-attn-4 4.0.0b36; none has run on such a GPU.
"""

from __future__ import annotations

from flashdepot.families.fa4.variants import JobValue, Variant

Made = tuple[dict[str, JobValue], tuple[int, int], bool]
"""The job of a kernel, its tiles, and whether its number of blocks is an argument."""

_CONSUMER_TILES = {64: (128, 128), 96: (128, 64), 128: (128, 64)}
"""For 99 KB of shared memory (359-365)."""

_DATACENTER_FORWARD = {64: 2, 96: 2, 128: 2, 256: 1}
"""How many tiles of 128 query rows a block has: two of head dim 256 are more than tensor memory (387-391)."""

_DATACENTER_BACKWARD = frozenset({64, 96, 128})
"""At 256 upstream has kernels of another form, which write dq themselves."""

_ROWS, _KEYS = 128, 128


def is_made(arch: str, variant: Variant) -> bool:
    """Whether there is a kernel of a variant for an architecture, 100f, 110f or 120f."""
    if variant.long:
        return False
    if arch.startswith("12"):
        return variant.kernel == "fwd" and variant.layout != "paged" and variant.head_dim in _CONSUMER_TILES
    return variant.head_dim in (_DATACENTER_FORWARD if variant.kernel == "fwd" else _DATACENTER_BACKWARD)


def made_of(arch: str, variant: Variant) -> Made:
    """How a variant is made for an architecture that there is a kernel of it for."""
    if arch.startswith("12"):
        return _consumer(variant)
    return _datacenter_forward(variant) if variant.kernel == "fwd" else _datacenter_backward(variant)


def _shared(variant: Variant) -> dict[str, JobValue]:
    return {
        "kernel": variant.kernel,
        "head_dim": variant.head_dim,
        "dtype": variant.dtype,
        "layout": variant.layout,
        "mask": variant.mask,
    }


def _consumer(variant: Variant) -> Made:
    tiles = _CONSUMER_TILES[variant.head_dim]
    job: dict[str, JobValue] = {**_shared(variant), "softcap": variant.softcap, "tile_m": tiles[0], "tile_n": tiles[1]}
    return job, tiles, False


def _datacenter_forward(variant: Variant) -> Made:
    q_tiles = _DATACENTER_FORWARD[variant.head_dim]
    walks = variant.mask == "full" and variant.layout != "packed"
    job: dict[str, JobValue] = {
        **_shared(variant),
        "softcap": variant.softcap,
        "tile_m": _ROWS,
        "tile_n": _KEYS,
        "q_tiles": q_tiles,
        # Two products with keys are in tensor memory in turn, where there is one tile of rows (1435-1454).
        "s_in_turn": q_tiles == 1 and not variant.softcap and variant.layout != "paged",
        "walks": walks,
    }
    return job, (_ROWS * q_tiles, _KEYS), walks


def _datacenter_backward(variant: Variant) -> Made:
    job = _shared(variant)
    if variant.kernel == "bwd":
        job |= {"softcap": variant.softcap, "several_heads": variant.several_heads, "tile_m": _ROWS, "tile_n": _KEYS}
    elif variant.kernel == "pre":
        job |= {"tile_m": _ROWS, "hdim_multiple": 32}
    else:
        job |= {"kernel": "post", "tile": _ROWS if variant.kernel == "dq" else _KEYS}
    return job, (0 if variant.kernel == "dkv" else _ROWS, _KEYS), False
