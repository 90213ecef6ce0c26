"""Kernels whose blocks have a tile of packed sequences each, and find its sequence among many quickly.

Upstream's blocks add up the tiles of all sequences from the first one on, which with hundreds of them takes as long as
a block's work, and do so again when that has ended. Here a sequence's first block follows from its number and the rows before
it, so that a warp finds a block's sequence by 32 places of what is left at a time. Some blocks between two sequences have no
work; upstream's grid has as many, at its end.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, const_expr
from flash_attn.cute.tile_scheduler import SingleTileVarlenScheduler, WorkTileInfo
from traced import seeing


@cute.jit
def last_rows_first(decoder, nth, rows):
    """The row of tiles and the head of a sequence's nth tile: the last rows first, of as many heads as L2 has the keys of."""
    rows_of_keys = rows * decoder.tile_shape_mn[0] // decoder.qhead_per_kvhead_packgqa // decoder.tile_shape_mn[1]
    near = Int32(16)
    for _ in cutlass.range_constexpr(4):
        near = cutlass.select_(rows_of_keys * near > decoder.max_kvblock_in_l2, near // 2, near)
    near = cutlass.min(near, decoder.num_head)
    section = nth // (near * rows)
    rest = nth - section * near * rows
    heads = cutlass.min(near, decoder.num_head - section * near)
    row = rest // heads
    return rows - 1 - row, section * near + rest - row * heads


@cute.jit
def _first_of(decoder, sequence):
    """A sequence's first block of a head: at least as many lie before the next one's as it has tiles."""
    rows = decoder.tile_shape_mn[0]
    return (decoder.mCuSeqlensQ[sequence] + sequence * (rows - 1)) // rows


@cute.jit
def found(decoder, block):
    """The tile, head and sequence of a block of the grid, and whether it has work. All threads of the warp ask together."""
    nth, lane = block // decoder.num_head, cute.arch.lane_idx()
    sequence, span = Int32(0), decoder.num_batch
    while span > 1:
        step = (span + cute.arch.WARP_SIZE - 1) // cute.arch.WARP_SIZE
        is_before = Boolean(False)
        if lane * step < span:
            is_before = _first_of(decoder, sequence + lane * step) <= nth
        skipped = (cute.arch.popc(cute.arch.vote_ballot_sync(is_before)) - 1) * step
        sequence += skipped
        span = cutlass.min(step, span - skipped)
    first = _first_of(decoder, sequence)
    slots = cutlass.max(_first_of(decoder, sequence + 1) - first, 1)
    inside = block - first * decoder.num_head
    head = inside // slots
    tile = inside - head * slots
    has_work = head < decoder.num_head
    if const_expr(decoder.lpt):
        tile, head = last_rows_first(decoder, cutlass.select_(has_work, inside, Int32(0)), slots)
    rows = decoder.mCuSeqlensQ[sequence + 1] - decoder.mCuSeqlensQ[sequence]
    has_work = has_work & (tile * decoder.tile_shape_mn[0] < rows)
    return cutlass.select_(has_work, tile, Int32(0)), cutlass.select_(has_work, head, Int32(0)), sequence, has_work


class OneTile(SingleTileVarlenScheduler):
    """Upstream's, of which a block asks once."""

    @classmethod
    def create(cls, params, ctx=None, *, loc=None, ip=None):
        return cls(params, cute.arch.block_idx()[0], Int32(0), loc=loc, ip=ip)

    @cute.jit
    def _decode_work_tile(self):
        tile, head, sequence, has_work = found(self.params.decoder, self._tile_idx)
        return WorkTileInfo((tile, head, sequence, Int32(0)), has_work)

    def get_current_work(self, *, loc=None, ip=None):
        if self._is_first_block:
            return self._decode_work_tile()
        return WorkTileInfo((Int32(0),) * 4, Boolean(False))


def searching(kernel_class, module):
    """kernel_class, whose module has upstream's scheduler, with blocks of one tile each."""

    class Searching(kernel_class):
        def __call__(self, *arguments, **named):
            with seeing(module, SingleTileVarlenScheduler=OneTile):
                super().__call__(*arguments, **named)

    return Searching
