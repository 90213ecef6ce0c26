"""Backward kernels over many packed sequences whose blocks find their own quickly.

Upstream's blocks add up the tiles of all sequences from the first one on, which with a thousand sequences takes longer than
a block's work. Here a sequence's first block follows from its number and the rows before it, so that a warp finds a block's
sequence by 32 places of what is left at a time. Some blocks between two sequences have no work; upstream's grid has as
many, at its end.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from flash_attn.cute.tile_scheduler import SingleTileVarlenScheduler, WorkTileInfo
from traced import seeing

_LANES = 32


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
        step = (span + _LANES - 1) // _LANES
        is_before = cutlass.Boolean(False)
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
    rows = decoder.mCuSeqlensQ[sequence + 1] - decoder.mCuSeqlensQ[sequence]
    has_work = (head < decoder.num_head) & (tile * decoder.tile_shape_mn[0] < rows)
    return cutlass.select_(has_work, tile, Int32(0)), cutlass.select_(has_work, head, Int32(0)), sequence, has_work


class _Scheduler(SingleTileVarlenScheduler):
    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        return _Scheduler(params, cute.arch.block_idx()[0], Int32(0), loc=loc, ip=ip)

    @cute.jit
    def _decode_work_tile(self):
        tile, head, sequence, has_work = found(self.params.decoder, self._tile_idx)
        return WorkTileInfo((tile, head, sequence, Int32(0)), has_work)


def searching(kernel_class, module):
    """kernel_class, whose module has upstream's scheduler, with blocks of one tile each."""

    class Searching(kernel_class):
        def __call__(self, *arguments, **named):
            with seeing(module, SingleTileVarlenScheduler=_Scheduler):
                super().__call__(*arguments, **named)

    return Searching
