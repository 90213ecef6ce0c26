"""Forward kernels of which a block walks from tile to tile, instead of a block for each tile.

Upstream's forward for Hopper loops over the tiles that its scheduler names, and names one. What it does not do for several
is here: an order of tiles, and shared memory of Q that stays until O, which lies in the same place, has been read from it.
"""

import copy

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr
from flash_attn.cute import flash_fwd_sm90
from flash_attn.cute.pipeline import PipelineTmaAsync
from flash_attn.cute.tile_scheduler import (
    SingleTileLPTScheduler,
    SingleTileVarlenScheduler,
    StaticPersistentTileScheduler,
    WorkTileInfo,
)
from order import tile_of
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
    """Tiles of falling work: blocks take one each from the first to the last, then from the last to the first.

    Heads whose keys fit into the L2 cache together take turns. Upstream's number of a split, of which there is one, holds
    the way to the block's next tile.
    """

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return cutlass.min(Grid.blocks, params.total_blocks), Int32(1), Int32(1)

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        block, blocks = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        return LongestFirst(params, block, 2 * (blocks - block) - 1, loc=loc, ip=ip)

    def advance_to_next_work(self, *, loc=None, ip=None):
        self._tile_idx += self._split_idx
        self._split_idx = 2 * cute.arch.grid_dim()[0] - self._split_idx
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


class OfSequences(SingleTileVarlenScheduler):
    """Tiles of packed sequences: each block takes the one that lies a grid further on.

    Upstream looks for the sequence of a tile from the first one on, which takes longer than short sequences themselves where
    there are hundreds. Here it is from that of the tile before: what upstream calls a split holds it, and its first tile.
    """

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        most, splits, one = SingleTileVarlenScheduler.get_grid_shape(params)
        return cutlass.min(Grid.blocks, most), splits, one

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        return OfSequences(params, cute.arch.block_idx()[0], (Int32(0), Int32(0)), loc=loc, ip=ip)

    @cute.jit
    def _decode_work_tile(self):
        row, head_idx, batch_idx, _, _, first, is_valid = self.params.decoder.decode(self._tile_idx, *self._split_idx)
        self._split_idx = (Int32(batch_idx), Int32(first))
        return WorkTileInfo((Int32(row), Int32(head_idx), Int32(batch_idx), Int32(0)), is_valid)

    def advance_to_next_work(self, *, loc=None, ip=None):
        self._tile_idx += cute.arch.grid_dim()[0]
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
