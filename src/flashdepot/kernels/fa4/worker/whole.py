"""Backward kernels for sequences whose keys are one tile: all gradients by one launch, without sums in memory.

Upstream adds dq of each tile of keys to a sum in float32. Where one tile has all keys, dq is known when it has been
multiplied once, and so is D, rowsum(o * do): it is rowsum(p * dp) over that tile.
"""

import math
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from adding import part_of_dq, unstaged
from cutlass import Float32, Int32, const_expr
from cutlass.cute.nvgpu import warpgroup
from flash_attn.cute import flash_bwd_sm90, utils
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.tile_scheduler import SingleTileScheduler
from flash_attn.cute.utils import AuxData
from quack import layout_utils
from traced import seeing

ROWS = 64  # of a tile of queries: each warp group has them all, and half of the keys
_ROUNDING = 128  # rows that flash_attention.h pads a sequence of softmax_d to


class _Sequences(SingleTileScheduler):
    """A block for each head of each sequence, those of one sequence side by side."""

    @staticmethod
    def get_grid_shape(params, *, loc=None, ip=None):
        return params.num_head * params.num_batch, Int32(1), Int32(1)

    @staticmethod
    def create(params, ctx=None, *, loc=None, ip=None):
        cute.arch.griddepcontrol_wait()
        block = cute.arch.block_idx()[0]
        batch_idx = block // params.num_head
        return SingleTileScheduler(params, (Int32(0), block - batch_idx * params.num_head, batch_idx), loc=loc, ip=ip)


@dataclass(frozen=True)
class _AllRows:
    """Every tile of query rows, those that see no key too: their dq is 0."""

    def get_m_block_min_max(self, seqlen_info, n_block):
        return 0, cute.ceil_div(seqlen_info.seqlen_q, ROWS)


def _all_rows(*_, **__):
    return _AllRows()


class Whole(unstaged(FlashAttentionBackwardSm90)):
    """Upstream's backward for one tile of keys, with the arguments of functions.backward.

    dq is where upstream's kernel has its sum, and lse, d_lse and softmax_d are its tensors that only a score_mod reads.
    """

    def __call__(self, q, k, v, d_o, lse, d_lse, softmax_d, dq, *rest):
        self.others = (dq, lse, d_lse, softmax_d)
        order = {"SingleTileScheduler": _Sequences, "SingleTileVarlenScheduler": _Sequences}
        with seeing(flash_bwd_sm90, **order, BlockInfo=_all_rows):
            super().__call__(q, k, v, d_o, lse, lse, lse, *rest)

    def kernel(self, *arguments):
        self.tma_copy_bytes |= {"LSE": 0, "dPsum": 0}
        dq, *statistics = self.others
        rows_first = [layout_utils.select(t, [2, 1, 0] if cute.rank(t) == 3 else [1, 0]) for t in statistics]
        dq = layout_utils.select(dq, [1, 2, 3, 0]) if cute.rank(dq) == 4 else dq
        given = list(arguments)
        given[14], given[35] = dq, AuxData(rows_first, None)
        return super().kernel(*given)

    def mma(self, *arguments, **named):
        given = list(arguments)
        self.dq, self.sums, self.thread, self.scale = given[8], given[15], given[20], given[25]
        self.lse, self.d_lse, self.softmax_d = given[30].tensors
        given[30] = AuxData()
        super().mma(*given, **named)

    @cute.jit
    def mma_one_m_block(
        self, m_block, consumer_state_Q, consumer_state_dO, warp_group_idx, mma_qk_fn, mma_dov_fn, mma_pdo_fn, mma_dsq_fn,
        mma_dsk_fn, copy_P_r2s, copy_dS_r2s, pipeline_Q, pipeline_dO, tLSEsLSE, tLSEsdPsum, tdQsdQaccum, softmax_scale_log2,
        PdS_barrier, is_dQ_wg, mask_fn, score_mod_fn, score_mod_bwd_fn, dKV_accumulate,
    ):  # fmt: skip
        of = score_mod_fn.keywords
        info, batch_idx, head = of["seqlen_info"], of["batch_idx"], of["head_idx"]
        sums, d_lse_rows = self.sums, info.offset_batch_Q(self.d_lse, batch_idx, dim=2)
        lane = self.thread % 32
        in_tile = self.thread % 128 // 32 * 16 + lane // 4  # the first of a thread's two rows, which lie 8 apart
        first = m_block * ROWS + in_tile
        state_dO = consumer_state_Q if const_expr(self.Q_stage == self.dO_stage) else consumer_state_dO
        stage_Q = consumer_state_Q.index
        stage_dO = state_dO.index if const_expr(self.dO_stage > 1) else 0

        lse_log2 = cute.make_rmem_tensor(2, Float32)
        shift = cute.make_rmem_tensor(2, Float32)
        lse_rows = info.offset_batch_Q(self.lse, batch_idx, dim=2)
        for r in cutlass.range_constexpr(2):
            lse, d_lse = Float32.inf, Float32(0.0)
            if first + 8 * r < info.seqlen_q:
                lse = lse_rows[first + 8 * r, head]
                if head < d_lse_rows.shape[1] and lse != Float32.inf:
                    d_lse = d_lse_rows[first + 8 * r, head]
            lse_log2[r] = lse * math.log2(math.e)
            shift[r] = d_lse

        pipeline_Q.consumer_wait(consumer_state_Q, pipeline_Q.consumer_try_wait(consumer_state_Q))
        acc_S = mma_qk_fn(A_idx=stage_Q, wg_wait=-1)
        pipeline_dO.consumer_wait(state_dO, pipeline_dO.consumer_try_wait(state_dO))
        acc_dP = mma_dov_fn(A_idx=stage_dO, wg_wait=1)
        mask_fn(acc_S, m_block=m_block)
        p = layout_utils.reshape_acc_to_mn(acc_S)
        for r in cutlass.range_constexpr(2):
            for c in cutlass.range(cute.size(p, mode=[1]), unroll_full=True):
                p[r, c] = cute.math.exp2(p[r, c] * softmax_scale_log2 - lse_log2[r], fastmath=True)
        warpgroup.wait_group(0)

        # D of a row: each warp group has the sum over its keys.
        ds = layout_utils.reshape_acc_to_mn(acc_dP)
        for r in cutlass.range_constexpr(2):
            total = Float32(0.0)
            for c in cutlass.range(cute.size(p, mode=[1]), unroll_full=True):
                total += p[r, c] * ds[r, c]
            for i in cutlass.range_constexpr(2):
                total += cute.arch.shuffle_sync_bfly(total, offset=1 << i)
            if lane % 4 == 0:
                sums[in_tile + 8 * r, warp_group_idx] = total
        PdS_barrier.arrive_and_wait()  # the other's products with p and ds of the tile before have ended too
        for r in cutlass.range_constexpr(2):
            shift[r] = sums[in_tile + 8 * r, 0] + sums[in_tile + 8 * r, 1] - shift[r]
            for c in cutlass.range(cute.size(p, mode=[1]), unroll_full=True):
                ds[r, c] = p[r, c] * (ds[r, c] - shift[r])
        copy_P_r2s(utils.cvt_f16(layout_utils.reshape_acc_to_frgA(acc_S), self.dtype), dst_idx=0)
        copy_dS_r2s(utils.cvt_f16(layout_utils.reshape_acc_to_frgA(acc_dP), self.dtype), dst_idx=0)
        cute.arch.fence_view_async_shared()
        PdS_barrier.arrive_and_wait()

        mma_pdo_fn(A_idx=0, B_idx=stage_dO, zero_init=not dKV_accumulate, wg_wait=-1)
        acc_dQ = part_of_dq(mma_dsk_fn.args, 0, self.parts, 0)
        warpgroup.wait_group(1)
        pipeline_dO.consumer_release(state_dO)
        mma_dsq_fn(A_idx=0, B_idx=stage_Q, zero_init=not dKV_accumulate, wg_wait=1)
        softmax_d = self.softmax_d
        if head < softmax_d.shape[1] and warp_group_idx == 0 and lane % 4 == 0:
            self._store_softmax_d(softmax_d, shift, first, head, batch_idx, info)
        rows = info.offset_batch_Q(self.dq, batch_idx, dim=3)[None, head, None]
        self._store_part(acc_dQ, rows, first, info.seqlen_q, warp_group_idx, 0)
        for number in cutlass.range_constexpr(1, self.parts):
            cute.arch.sync_warp()  # else the compiler has them all at a time
            acc_dQ = part_of_dq(mma_dsk_fn.args, number, self.parts, 0)
            warpgroup.wait_group(0)
            self._store_part(acc_dQ, rows, first, info.seqlen_q, warp_group_idx, number)
        warpgroup.wait_group(0)
        pipeline_Q.consumer_release(consumer_state_Q)
        consumer_state_Q.advance()
        consumer_state_dO.advance()
        return consumer_state_Q, consumer_state_dO

    @cute.jit
    def _store_softmax_d(self, softmax_d, d, first, head, batch_idx, info):
        for r in cutlass.range_constexpr(2):
            row = first + 8 * r
            if row < info.seqlen_q:
                if const_expr(info.has_cu_seqlens_q):
                    softmax_d[info.offset_q + batch_idx * _ROUNDING + row, head] = d[r]
                else:
                    softmax_d[row, head, batch_idx] = d[r]

    @cute.jit
    def _store_part(self, part, rows, first, seqlen_q, warp_group_idx, number):
        """Of 8 columns four threads have two each; of 16 each gets four, so that it stores 8 bytes."""
        lane = self.thread % 4
        odd = lane % 2
        width = self.tile_hdim // self.parts // self.num_wg_dQ
        start = number * (self.tile_hdim // self.parts) + warp_group_idx * width + 8 * odd + 2 * (lane - odd)

        def two(at):
            return utils.cvt_f16x2_f32(part[at] * self.scale, part[at + 1] * self.scale, self.dtype)

        for pair in cutlass.range_constexpr(width // 16):
            column = start + 16 * pair
            for r in cutlass.range_constexpr(2):
                here, there = two(8 * pair + 2 * r), two(8 * pair + 4 + 2 * r)
                other = cute.arch.shuffle_sync_bfly(cutlass.select_(odd == 1, here, there), offset=1)
                four = cute.make_rmem_tensor(2, Int32)
                four[0] = cutlass.select_(odd == 1, other, here)
                four[1] = cutlass.select_(odd == 1, there, other)
                if first + 8 * r < seqlen_q and column < rows.shape[1]:
                    address = utils.elem_pointer(rows, (first + 8 * r, column)).toint()
                    pointer = cute.make_ptr(Int32, address, cute.AddressSpace.gmem, assumed_align=8)
                    cute.autovec_copy(four, cute.make_tensor(pointer, cute.make_layout(2)))
