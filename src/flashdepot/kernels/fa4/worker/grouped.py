"""Backward kernels of which a block goes through the rows of all query heads that share a key head.

Upstream has a block for each query head, and adds its dk and dv to sums in float32: memory that is cleared, added to, read and
rounded. Here a block has the sums of its keys in registers until the last head, and loads k and v once.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr
from cutlass.cute import FastDivmodDivisorV2
from flash_attn.cute import flash_bwd_sm90
from flash_attn.cute.tile_scheduler import SingleTileScheduler, TileSchedulerArguments
from quack import copy_utils
from traced import seeing


def heads_of_keys(scheduler):
    """Of upstream's schedulers, as its kernels are given them."""
    params = scheduler.args[0]
    return getattr(params, "decoder", params).num_head


@dataclass(frozen=True)
class _EachHead:
    """Tiles of query rows, those of each query head of a key head one after the other."""

    of_one: Any
    heads: Int32

    def get_m_block_min_max(self, seqlen_info, n_block):
        low, high = self.of_one.get_m_block_min_max(seqlen_info, n_block)
        return 0, self.heads * (high - low)


def _tile_of_head(place):
    return SingleTileScheduler(SingleTileScheduler.Params(1, 1, 1, 1, FastDivmodDivisorV2(1)), place)


def _load_numbers(seqlen, batch_idx, size, tensor, shared, pipeline, state, m_block, head):
    rows = seqlen.offset_batch_Q(tensor, batch_idx, dim=2, padded=True)[None, head]
    copy = copy_utils.cpasync_bulk_get_copy_fn(cute.local_tile(rows, (size,), (None,)), shared)
    copy_utils.tma_producer_copy_fn(copy, pipeline)(m_block, producer_state=state)


def _nothing(*_):
    """Stands for the copies of numbers that a kernel does without."""


def grouped(kernel_class, *, has_statistics=True):
    """kernel_class for any number of query heads a key head. has_statistics: it loads lse and D by tiles of rows."""

    class Grouped(kernel_class):
        def __call__(self, q, k, *rest):
            heads = k.shape[len(k.shape) - 2]

            def of_key_heads(blocks, _, *more, **named):
                return TileSchedulerArguments(blocks, heads, *more, **named)

            with seeing(flash_bwd_sm90, TileSchedulerArguments=of_key_heads):
                super().__call__(q, k, *rest)

        @cute.jit
        def load(
            self, mQ, mK, mV, mdO, mLSE, mdPsum, sQ, sK, sV, sdO, sLSE, sdPsum, tma_atom_Q, tma_atom_K, tma_atom_V,
            tma_atom_dO, pipeline_Q, pipeline_dO, block_info, SeqlenInfoCls, TileSchedulerCls, *_
        ):  # fmt: skip
            tile = TileSchedulerCls().initial_work_tile_info()
            if tile.is_valid_tile:
                n_block, head_k, batch_idx, _ = tile.tile_idx
                seqlen = SeqlenInfoCls(batch_idx)
                heads = mQ.shape[2] // heads_of_keys(TileSchedulerCls)
                low, high = block_info.get_m_block_min_max(seqlen, n_block)
                count = high - low
                one = cute.make_layout(1)

                def of_keys(tensor):
                    rows = seqlen.offset_batch_K(tensor, batch_idx, dim=3)[None, None, head_k]
                    return cute.local_tile(rows, (self.tile_n, self.tile_hdim), (n_block, 0))

                def of_queries(tensor):
                    rows = seqlen.offset_batch_Q(tensor, batch_idx, dim=3)
                    return cute.group_modes(cute.local_tile(rows, (self.tile_m, self.tile_hdim), (None, 0, None)), 2, 4)

                load_numbers = (
                    partial(_load_numbers, seqlen, batch_idx, self.tile_m) if const_expr(has_statistics) else _nothing
                )
                load_K, _, _ = copy_utils.tma_get_copy_fn(tma_atom_K, 0, one, of_keys(mK), sK, single_stage=True)
                load_V, _, _ = copy_utils.tma_get_copy_fn(tma_atom_V, 0, one, of_keys(mV), sV, single_stage=True)
                load_Q, _, _ = copy_utils.tma_get_copy_fn(tma_atom_Q, 0, one, of_queries(mQ), sQ)
                load_dO, _, _ = copy_utils.tma_get_copy_fn(tma_atom_dO, 0, one, of_queries(mdO), sdO)
                load_Q = copy_utils.tma_producer_copy_fn(load_Q, pipeline_Q)
                load_dO = copy_utils.tma_producer_copy_fn(load_dO, pipeline_dO)

                state_Q = cutlass.pipeline.make_pipeline_state(cutlass.pipeline.PipelineUserType.Producer, self.Q_stage)
                state_dO = cutlass.pipeline.make_pipeline_state(
                    cutlass.pipeline.PipelineUserType.Producer, self.dO_stage
                )
                if count > 0:
                    head = head_k * heads
                    pipeline_Q.producer_acquire(state_Q, extra_tx_count=self.tma_copy_bytes["K"])
                    load_K(tma_bar_ptr=pipeline_Q.producer_get_barrier(state_Q))
                    load_Q((low, head), producer_state=state_Q)
                    if const_expr(has_statistics):
                        cute.arch.griddepcontrol_wait()
                    load_numbers(mLSE, sLSE, pipeline_Q, state_Q, low, head)
                    pipeline_dO.producer_acquire(state_dO, extra_tx_count=self.tma_copy_bytes["V"])
                    load_V(tma_bar_ptr=pipeline_dO.producer_get_barrier(state_dO))
                    load_dO((low, head), producer_state=state_dO)
                    load_numbers(mdPsum, sdPsum, pipeline_dO, state_dO, low, head)
                    state_Q.advance()
                    state_dO.advance()
                    for number in cutlass.range(1, heads * count, unroll=1):
                        nth = number // count
                        head = head_k * heads + nth
                        m_block = low + number - nth * count
                        pipeline_Q.producer_acquire(state_Q)
                        load_Q((m_block, head), producer_state=state_Q)
                        load_numbers(mLSE, sLSE, pipeline_Q, state_Q, m_block, head)
                        pipeline_dO.producer_acquire(state_dO)
                        load_dO((m_block, head), producer_state=state_dO)
                        load_numbers(mdPsum, sdPsum, pipeline_dO, state_dO, m_block, head)
                        state_Q.advance()
                        state_dO.advance()

        @cute.jit
        def dQaccum_store(self, mdQaccum, sdQaccum, block_info, TileSchedulerCls, *rest):
            tile = TileSchedulerCls().initial_work_tile_info()
            if tile.is_valid_tile:
                n_block, head_k, batch_idx, _ = tile.tile_idx
                heads = mdQaccum.shape[1] // heads_of_keys(TileSchedulerCls)
                for nth in cutlass.range(heads, unroll=1):
                    of_head = partial(_tile_of_head, (n_block, head_k * heads + nth, batch_idx))
                    super(Grouped, self).dQaccum_store(mdQaccum, sdQaccum, block_info, of_head, *rest)

        def mma(self, *arguments, **named):
            given = list(arguments)
            self.heads = given[8].shape[1] // heads_of_keys(given[29])
            self.of_one = given[26]
            given[26] = _EachHead(given[26], self.heads)
            super().mma(*given, **named)

        def mma_one_m_block(self, number, *states, **named):
            of = named["score_mod_fn"].keywords
            low, high = self.of_one.get_m_block_min_max(of["seqlen_info"], of["n_block"])
            nth = number // (high - low)
            of_head = partial(named["score_mod_fn"], head_idx=of["head_idx"] * self.heads + nth)
            m_block = low + number - nth * (high - low)
            return super().mma_one_m_block(m_block, *states, **{**named, "score_mod_fn": of_head})

    return Grouped
