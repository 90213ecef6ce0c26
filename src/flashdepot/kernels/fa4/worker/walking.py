"""Forward kernels of which a block walks from tile to tile, instead of a block for each tile.

Upstream's forward for Hopper loops over the tiles that its scheduler names, and names one. What it does not do for several
is here: an order of tiles, and shared memory of Q that stays until O, which lies in the same place, has been read from it.
"""

import copy
from dataclasses import replace

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, const_expr
from flash_attn.cute import flash_fwd_sm90, utils
from flash_attn.cute.pipeline import PipelineTmaAsync
from flash_attn.cute.tile_scheduler import (
    SingleTileLPTScheduler,
    SingleTileVarlenScheduler,
    StaticPersistentTileScheduler,
    WorkTileInfo,
)
from order import in_turns, share_of, tile_of
from searching import last_rows_first
from traced import seeing

_ALIGNED = 1024  # bytes, that a tile in shared memory starts at a multiple of
_BARRIER_BEFORE_EPILOGUE = 8  # no other of the forward's barriers has this number


class Grid:
    """The number of blocks of the kernel that is being compiled: an argument of its function."""

    blocks: Int32


class RowsThenHeads(StaticPersistentTileScheduler):
    """Tiles of equal work: each block takes the one that lies a grid further on."""

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return cutlass.min(Grid.blocks, params.total_blocks_cluster), Int32(1), Int32(1)


class LongestFirst(SingleTileLPTScheduler):
    """Tiles of falling work, see order.py. Heads whose keys fit into the L2 cache together take turns.

    What upstream calls the number of splits is here that of the blocks that take turns, and a split the end of the block's tiles.
    """

    @staticmethod
    def to_underlying_arguments(args, **named):
        return SingleTileLPTScheduler.to_underlying_arguments(replace(args, num_splits=Grid.blocks), **named)

    @staticmethod
    def shared(params):
        rows = params.num_block  # the more there are, the longer a tile takes
        rounds = cutlass.min(cutlass.max(rows // 12, 1), 3) + rows // 64
        return in_turns(params.total_blocks, params.num_splits, rounds, cutlass.max)

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        tiles = params.total_blocks
        return cutlass.min(tiles, params.num_splits + tiles - LongestFirst.shared(params)), Int32(1), Int32(1)

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        block = cute.arch.block_idx()[0]
        first, end = share_of(block, params.num_splits, LongestFirst.shared(params), cutlass.select_)
        return LongestFirst(params, first, end, loc=loc, ip=ip)

    def advance_to_next_work(self, *, loc=None, ip=None):
        tile = self._tile_idx + self.params.num_splits
        self._tile_idx = cutlass.select_(tile < self._split_idx, tile, self.params.total_blocks)
        return self.get_current_work()


class LastWithFirst(SingleTileLPTScheduler):
    """Tiles of unequal work, see order.py. What upstream calls the tile's number is the block's own count of them."""

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return cutlass.min(Grid.blocks, params.total_blocks), Int32(1), Int32(1)

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        return LastWithFirst(params, Int32(0), Int32(0), loc=loc, ip=ip)

    def get_current_work(self, *, loc=None, ip=None):
        params = self.params
        head, row, is_valid = tile_of(
            self._tile_idx,
            cute.arch.block_idx()[0],
            cute.arch.grid_dim()[0],
            params.num_block,
            params.num_head * params.num_batch,
            lambda condition, this, that: cutlass.select_(condition, Int32(this), Int32(that)),
        )
        batch_idx, head_idx = divmod(head, params.num_head_divmod)
        return WorkTileInfo((row, head_idx, batch_idx, Int32(0)), is_valid)

    def advance_to_next_work(self, *, loc=None, ip=None):
        self._tile_idx += 1
        return self.get_current_work()


_EVERY = 2**30  # more tiles than there are
_GROUP = 31  # sequences that upstream's decoder looks at at once
_MOST_LOOKED_FOR = 4 * _GROUP  # sequences, by each block of a single tile


@cute.jit
def _by_length(decoder, first, sorts):
    """Of up to 31 sequences a lane's: 32 times its tiles, and 31 less its place among them. If asked for, the longest first."""
    lane = cute.arch.lane_idx()
    mine = decoder._num_m_blocks(lane, first) * 32 + 31 - lane
    if sorts:
        for part in cutlass.range_constexpr(1, 6):
            for step in cutlass.range_constexpr(part - 1, -1, -1):
                other = cute.arch.shuffle_sync_bfly(mine, 1 << step)
                takes_larger = (lane >> part & 1) == (lane >> step & 1)
                mine = cutlass.select_(takes_larger, cutlass.max(mine, other), cutlass.min(mine, other))
    return mine


class OfSequences(SingleTileVarlenScheduler):
    """Tiles of packed sequences, of every 31 the longest first where blocks take several, see order.py.

    Upstream looks for the sequence of a tile from the first one on, which takes longer than short sequences themselves where
    there are hundreds. Here it is from the group of the tile before. What upstream calls a split holds that group's first
    sequence and tile, its sequences by length, a lane each, and the end of the block's tiles; the number of splits is that
    of the blocks that take turns.
    """

    @staticmethod
    def to_underlying_arguments(args, **named):
        return SingleTileVarlenScheduler.to_underlying_arguments(replace(args, num_splits=Grid.blocks), **named)

    @staticmethod
    def tiles(params):
        """About as many as there are: of each sequence half of the last one is empty."""
        rows = params.decoder.tile_shape_mn[0]
        return (params.total_q + params.decoder.num_batch * (rows // 2)) // rows * params.decoder.num_head

    @staticmethod
    def shared(params):
        decoder = params.decoder
        shared = in_turns(OfSequences.tiles(params), decoder.num_splits, 2, cutlass.max)
        return cutlass.select_(decoder.num_batch <= _MOST_LOOKED_FOR, shared, Int32(_EVERY))

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        most = SingleTileVarlenScheduler.get_grid_shape(params)[0]
        alone = cutlass.max(most - OfSequences.shared(params), 0)
        return cutlass.min(most, params.decoder.num_splits + alone), Int32(1), Int32(1)

    @staticmethod
    @cute.jit
    def create(params, ctx=None, *, loc=None, ip=None):
        decoder = params.decoder
        blocks, shared = decoder.num_splits, OfSequences.shared(params)
        sorts = OfSequences.tiles(params) > blocks
        group = _by_length(decoder, Int32(0), sorts)
        if const_expr(not decoder.lpt):
            # Of about the same length they have equal tiles, and short ones take less time than a block to begin.
            tiles = cute.arch.shuffle_sync(utils.warp_prefix_sum(group >> 5, cute.arch.lane_idx()), 31)
            longest = cute.arch.shuffle_sync(group >> 5, 0)
            is_unequal = longest * cutlass.min(decoder.num_batch, _GROUP) * 2 > tiles * 3
            is_long = longest * decoder.tile_shape_mn[0] >= 1024
            shared = cutlass.select_(sorts and is_unequal and is_long, shared, Int32(_EVERY))
        first, end = share_of(cute.arch.block_idx()[0], blocks, shared, cutlass.select_)
        return OfSequences(params, first, (Int32(0), Int32(0), group, end), loc=loc, ip=ip)

    @cute.jit
    def _decode_work_tile(self):
        decoder, tile = self.params.decoder, self._tile_idx
        sequence, first, group, end = self._split_idx
        lane = cute.arch.lane_idx()
        before = utils.warp_prefix_sum(group >> 5, lane)
        after = first + cute.arch.shuffle_sync(before, 31) * decoder.num_head
        while after <= tile and sequence + _GROUP < decoder.num_batch:
            sequence += _GROUP
            first = after
            group = _by_length(decoder, sequence, Boolean(True))
            before = utils.warp_prefix_sum(group >> 5, lane)
            after = first + cute.arch.shuffle_sync(before, 31) * decoder.num_head
        self._split_idx = (sequence, first, group, end)
        place = cute.arch.popc(cute.arch.vote_ballot_sync(first + before * decoder.num_head <= tile))
        rows = cutlass.max(cute.arch.shuffle_sync(group >> 5, place), 1)
        nth = tile - first - cute.arch.shuffle_sync(before - (group >> 5), place) * decoder.num_head
        found = sequence + 31 - cute.arch.shuffle_sync(group & 31, place)
        is_valid = tile < after and tile < end
        if const_expr(decoder.lpt):
            row, head_idx = last_rows_first(decoder, nth, rows)
        else:
            head_idx = nth // rows
            row = nth - head_idx * rows
        return WorkTileInfo((Int32(row), Int32(head_idx), Int32(found), Int32(0)), is_valid)

    def advance_to_next_work(self, *, loc=None, ip=None):
        self._tile_idx += self.params.decoder.num_splits
        return self.get_current_work()


def _schedulers(*, is_local, falling):
    """What upstream's forward finds under its schedulers' names."""
    unequal = LongestFirst if falling else LastWithFirst
    return {
        "SingleTileScheduler": unequal if is_local else RowsThenHeads,
        "SingleTileLPTScheduler": unequal,
        "SingleTileVarlenScheduler": OfSequences,
    }


class _Held(PipelineTmaAsync):
    """Q's pipeline, to which upstream's release before the epilogue means nothing."""

    def consumer_release_w_index(self, index, *, loc=None, ip=None):
        pass


def _held(pipeline):
    held = copy.copy(pipeline)
    object.__setattr__(held, "__class__", _Held)
    return held


def walking(kernel_class, *, falling, o_apart):
    """kernel_class, for any number of tiles a block.

    falling: tiles of unequal work longest first, instead of the last of a head with the first.
    o_apart: O has shared memory of its own, so that the next tile's Q is loaded while O is stored.
    """

    class Walking(kernel_class):
        def __call__(self, *arguments, **named):
            with seeing(flash_fwd_sm90, **_schedulers(is_local=self.is_local, falling=falling)):
                super().__call__(*arguments, **named)

        def _get_shared_storage_cls(self):
            self.elements_q = cute.cosize(self.sQ_layout)
            elements_o = cute.cosize(self.sO_layout) if o_apart else 0
            elements_p = 0 if self.sP_layout is None else cute.cosize(self.sP_layout)

            def tile(elements):
                return cute.struct.Align[cute.struct.MemRange[self.dtype, elements], _ALIGNED]

            def barriers(stages):
                return cute.struct.MemRange[cutlass.Int64, 2 * stages]

            @cute.struct
            class SharedStorage:
                mbar_ptr_Q: barriers(1)
                mbar_ptr_K: barriers(self.num_stages)
                mbar_ptr_V: barriers(self.num_stages)
                sV: tile(cute.cosize(self.sV_layout))
                sQ: tile(self.elements_q + elements_o)
                sK: tile(cute.cosize(self.sK_layout))
                sP: tile(elements_p)

            return SharedStorage

        @cute.jit
        def mma(self, tiled_mma_qk, tiled_mma_pv, mO, mLSE, sQ, sK, sVt, sP, sO, sink, pipeline_k, pipeline_v,
                pipeline_q, *rest):  # fmt: skip
            self.pipeline_q = pipeline_q
            if const_expr(o_apart):
                sO = cute.make_tensor(sO.iterator + self.elements_q, sO.layout)
            super(Walking, self).mma(
                tiled_mma_qk, tiled_mma_pv, mO, mLSE, sQ, sK, sVt, sP, sO, sink, pipeline_k, pipeline_v,
                pipeline_q if const_expr(o_apart) else _held(pipeline_q), *rest,
            )  # fmt: skip

        @cute.jit
        def epilogue(self, *arguments):
            if const_expr(o_apart):
                # A warp that is a tile ahead must not meet the last of upstream's barriers, which has another count.
                cute.arch.barrier(barrier_id=_BARRIER_BEFORE_EPILOGUE, number_of_threads=self.num_epilogue_threads)
            super(Walking, self).epilogue(*arguments)
            if const_expr(not o_apart):
                cute.arch.sync_warp()
                self.pipeline_q.consumer_release_w_index(0)

    return Walking
