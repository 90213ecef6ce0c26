"""Backward kernels whose blocks begin with the most work, so that none of the last ones is long.

Upstream's go head by head. By a causal mask the last head's first block sees all rows when most SMs have ended; of packed
sequences the last one may be the longest. Here some heads take turns, and their blocks with the most rows of queries come
first. Not all heads do: the blocks of one that run at the same time read its rows together, from the L2 cache. More
sequences than a few are taken as they come (searching.py).
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr
from flash_attn.cute import flash_bwd_sm90
from flash_attn.cute.tile_scheduler import SingleTileScheduler, WorkTileInfo
from order import by_turns
from searching import OneTile, found
from traced import seeing

_L2 = 60_000_000  # bytes: q and the gradient of o in 2, the sum of dq in 4
_AT_ONCE = 320  # blocks of the heads that take turns: more of few heads read their rows together
_FEWEST = 4  # heads that do
_FEW = 2048  # blocks, among which one of a long sequence would be the last
_SORTED = 64  # sequences at most whose blocks are sorted, as each block does it for itself


def _heads_at_once(tiles):
    """How many heads of so many tiles take turns."""
    return cutlass.max(_AT_ONCE // tiles, _FEWEST)


class _Dense(SingleTileScheduler):
    """Blocks of sequences of one length, by a causal mask: the first of each head has the most rows."""

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return params.num_block * params.num_head * params.num_batch, Int32(1), Int32(1)

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        tiles, heads = cutlass.max(params.num_block, 1), params.num_head * params.num_batch
        head, n_block = by_turns(cute.arch.block_idx()[0], tiles, heads, _heads_at_once(tiles), cutlass.select_)
        batch_idx = head // params.num_head
        place = (n_block, head - batch_idx * params.num_head, batch_idx)
        return SingleTileScheduler(params, place, loc=loc, ip=ip)


def _packed(keys, head_dim, is_causal):
    class Packed(OneTile):
        """Blocks of sequences of any length. The level of one is how many tiles of rows it has to do, as if rows were keys."""

        @cute.jit
        def _tiles(self, sequence):
            """Of keys."""
            decoder, tiles = self.params.decoder, Int32(0)
            if sequence < decoder.num_batch:
                starts = decoder.mCuSeqlensQ
                tiles = cute.ceil_div(starts[sequence + 1] - starts[sequence], keys)
            return tiles

        @cute.jit
        def _from_level(self, level, by_block):
            """How many blocks of a head have at least this level, and the highest one of this thread's sequences."""
            blocks, highest = Int32(0), Int32(0)
            for first in cutlass.range(0, self.params.decoder.num_batch, cute.arch.WARP_SIZE, unroll=1):
                tiles = self._tiles(first + cute.arch.lane_idx())
                here = cutlass.select_(by_block, tiles - level + 1, tiles)
                blocks += cutlass.select_(tiles >= level, here, Int32(0))
                highest = cutlass.max(highest, tiles)
            return cute.arch.warp_redux_sync(blocks, "add"), highest

        @cute.jit
        def _decode_work_tile(self):
            n_block, head, sequence, is_valid = Int32(0), Int32(0), Int32(0), cutlass.Boolean(False)
            if self.params.decoder.num_batch > _SORTED:
                n_block, head, sequence, is_valid = found(self.params.decoder, self._tile_idx)
            else:
                n_block, head, sequence, is_valid = self._nth_by_work()
            return WorkTileInfo((n_block, head, sequence, Int32(0)), is_valid)

        @cute.jit
        def _nth_by_work(self):
            decoder, lane = self.params.decoder, cute.arch.lane_idx()
            blocks, highest = self._from_level(Int32(1), cutlass.Boolean(False))
            tiles = cutlass.max(blocks, 1)
            by_block = cutlass.Boolean(False)
            if const_expr(is_causal):
                by_block = (tiles * decoder.num_head <= _FEW) & (tiles <= _L2 // (8 * keys * head_dim))
            is_valid = self._tile_idx < blocks * decoder.num_head
            number = cutlass.select_(is_valid, self._tile_idx, Int32(0))
            head, nth = by_turns(number, tiles, decoder.num_head, _heads_at_once(tiles), cutlass.select_)

            level, above = Int32(1), cute.arch.warp_redux_sync(highest, "max") + 1
            before = Int32(0)
            while above - level > 1:
                middle = (level + above) // 2
                count, _ = self._from_level(middle, by_block)
                if count > nth:
                    level = middle
                else:
                    above, before = middle, count
            nth -= before

            # Of sequences that have a block of this level, or are of this level: which, and which of its blocks.
            which = cutlass.select_(by_block, nth, nth // level)
            batch_idx, n_block = Int32(0), nth - which * level
            first = Int32(0)
            while first < decoder.num_batch:
                tiles = self._tiles(first + lane)
                has = (tiles == level) | (by_block & (tiles > level))
                here = cute.arch.vote_ballot_sync(has)
                count = cute.arch.popc(here)
                if which < count:
                    is_it = has & (cute.arch.popc(here & ((1 << lane) - 1)) == which)
                    found = cute.arch.popc(cute.arch.vote_ballot_sync(is_it) - 1)
                    batch_idx = first + found
                    if by_block:
                        n_block = cute.arch.shuffle_sync(tiles, found) - level
                    first = decoder.num_batch
                which -= count
                first += cute.arch.WARP_SIZE
            return Int32(n_block), Int32(head), Int32(batch_idx), is_valid

    return Packed


def falling(kernel_class):
    """kernel_class, for as many blocks as upstream has."""

    class Falling(kernel_class):
        def __call__(self, *arguments, **named):
            ordered = {"SingleTileVarlenScheduler": _packed(self.tile_n, self.tile_hdim, self.is_causal)}
            if self.is_causal:
                ordered["SingleTileScheduler"] = _Dense
            with seeing(flash_bwd_sm90, **ordered):
                super().__call__(*arguments, **named)

    return Falling
