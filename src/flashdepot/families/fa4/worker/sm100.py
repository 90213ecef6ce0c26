"""Kernels for compute capability 10 and 11: upstream's for datacenter Blackwell, with what they leave out.

They copy by TMA and multiply by tcgen05.mma, into tensor memory. Arguments are those of Hopper's kernels (sm90.py).
"""

from typing import Any, Optional

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from flash_attn.cute import flash_bwd_sm100, flash_fwd_sm100
from flash_attn.cute.bwd_accum_tile import AccumTileOrder
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_sm100 import FlashAttentionBackwardSm100
from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100
from flash_attn.cute.utils import AuxData
from ragged import RaggedCute, block_at_least_0, places, rows_apart
from sm90 import DTYPES, Entry, _softcap, _softcap_gradient, _stream, _tensor, before_backward
from walking import Grid, RowsThenHeads


class _Group:
    """How many query heads share a key head, by the tensors that a kernel loads: heads are divided by it.

    Upstream asks of its own constant whether it is above one.
    """

    def __init__(self):
        self.q = self.k = None

    def __gt__(self, other):
        return True

    def __eq__(self, other):
        return False

    __hash__ = None

    def __rfloordiv__(self, head):
        return head // (self.q.shape[2] // self.k.shape[2])


class _Lse:
    """Rows of lse, where a row that sees no key gets infinity: upstream's is less than nothing."""

    def __init__(self, rows):
        self._rows = rows

    @cute.jit
    def __setitem__(self, row, lse):
        self._rows[row] = Float32.inf if lse == -Float32.inf else lse

    def __extract_mlir_values__(self):
        return cutlass.extract_mlir_values(self._rows)

    def __new_from_mlir_values__(self, values):
        return _Lse(cutlass.new_from_mlir_values(self._rows, values))


class _Cute:
    """The module cute, as upstream's forward sees it while a kernel is compiled. Lse is its only tile with one mode."""

    def __getattr__(self, name):
        return getattr(cute, name)

    def local_tile(self, tensor, tiler, *rest, **named):
        tile = cute.local_tile(tensor, tiler, *rest, **named)
        return _Lse(tile) if len(tiler) == 1 else tile


class _Forward(FlashAttentionForwardSm100):
    """Upstream's forward for any number of query heads per key head, with this library's lse for a row without keys."""

    seen = _Cute()

    def __call__(self, *arguments, **named):
        flash_fwd_sm100.cute = self.seen
        try:
            super().__call__(*arguments, **named)
        finally:
            flash_fwd_sm100.cute = cute

    def load(self, mma_qk, mma_pv, mQ, mK, *rest, **named):
        self.qhead_per_kvhead.q, self.qhead_per_kvhead.k = mQ, mK
        super().load(mma_qk, mma_pv, mQ, mK, *rest, **named)


class _Bounded(_Forward):
    """The same, with loads of k and v that end where a sequence does."""

    seen = RaggedCute(_Cute(), q_too=False)

    def load(self, mma_qk, mma_pv, mQ, mK, *rest, **named):
        apart = None if cute.rank(mQ) == 3 else rows_apart(mK, mQ.shape[3])
        rest = (places(argument, apart=apart, q_too=False) for argument in rest)
        super().load(mma_qk, mma_pv, mQ, mK, *rest, **named)

    def load_KV(self, *arguments, block, **named):
        super().load_KV(*arguments, block=block_at_least_0(block), **named)


def forward(job: dict[str, Any]) -> Entry:
    """o and lse of q, k and v. Layouts: dense, packed, used (dense with a number of keys each), paged."""
    dtype = DTYPES[job["dtype"]]
    layout = job["layout"]
    packed, softcap, local = layout == "packed", job["softcap"], job["mask"] == "local"
    kind = _Bounded if layout in ("packed", "used") else _Forward
    kernel = kind(
        job["head_dim"],
        job["head_dim"],
        _Group(),
        is_causal=job["mask"] == "causal",
        is_local=local,
        paged_kv_non_tma=layout == "paged",
        m_block_size=job["tile_m"],
        n_block_size=job["tile_n"],
        q_stage=job["q_tiles"],
        is_static_persistent=job["walks"],
        score_mod=_softcap if softcap else None,
        is_varlen_q=packed,
        use_s_ping_pong=job["s_in_turn"],
    )
    # Rows are stored up to the tensor's own head dim, not the kernel's.
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True
    if job["walks"]:
        kernel.TileScheduler = RowsThenHeads

    @cute.jit
    def fwd(
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        cu_seqlens_q: Optional[cute.Tensor],
        cu_seqlens_k: Optional[cute.Tensor],
        seqused_k: Optional[cute.Tensor],
        page_table: Optional[cute.Tensor],
        scale: Float32,
        softcap: Optional[Float32],
        window_left: Optional[Int32],
        window_right: Optional[Int32],
        blocks: Optional[Int32],
        stream: cuda.CUstream,
    ):
        Grid.blocks = blocks
        kernel(
            q, k, v, o, lse, scale, cu_seqlens_q, cu_seqlens_k, None, seqused_k, page_table,
            window_left, window_right,
            aux_data=AuxData(None, (softcap,) if softcap is not None else None),
            stream=stream,
        )  # fmt: skip

    def rows():
        return _tensor(dtype, 3 if packed else 4, 8)

    arguments = (
        rows(), rows(), rows(), rows(),
        _tensor(Float32, 2 if packed else 3, 1),
        _tensor(Int32, 1, 1) if packed else None,
        _tensor(Int32, 1, 1) if packed else None,
        _tensor(Int32, 1, 1) if layout in ("used", "paged") else None,
        _tensor(Int32, 2, 1) if layout == "paged" else None,
        Float32(1.0),
        Float32(1.0) if softcap else None,
        Int32(0) if local else None,
        Int32(0) if local else None,
        Int32(1) if job["walks"] else None,
        _stream(),
    )  # fmt: skip
    return Entry(fwd, arguments)


class _Backward(FlashAttentionBackwardSm100):
    """Upstream's backward for any number of query heads per key head, with gradients up to the tensor's own head dim."""

    def load(self, mma_s, mma_dp, mma_dv, mma_dk, mma_dq, mQ, mK, *rest, **named):
        if isinstance(self.qhead_per_kvhead, _Group):
            self.qhead_per_kvhead.q, self.qhead_per_kvhead.k = mQ, mK
        super().load(mma_s, mma_dp, mma_dv, mma_dk, mma_dq, mQ, mK, *rest, **named)

    def epilogue_dKV(self, *arguments):
        self.head_dim = self.head_dim_v = arguments[10].shape[1]
        return super().epilogue_dKV(*arguments)


class _BoundedBackward(_Backward):
    """The same, with loads of all tensors that end where a sequence does."""

    def __call__(self, *arguments, **named):
        flash_bwd_sm100.cute = RaggedCute(cute, q_too=True)
        try:
            super().__call__(*arguments, **named)
        finally:
            flash_bwd_sm100.cute = cute

    def load(self, *rest, **named):
        super().load(*(places(argument, apart=None, q_too=True) for argument in rest), **named)


def backward(job: dict[str, Any]) -> Entry:
    """dk, dv and the sum of dq in float32. With several query heads per key head dk and dv are float32 sums too."""
    dtype = DTYPES[job["dtype"]]
    packed, several, softcap = job["layout"] == "packed", job["several_heads"], job["softcap"]
    local = job["mask"] == "local"
    kind = _BoundedBackward if packed else _Backward
    kernel = kind(
        job["head_dim"],
        job["head_dim"],
        job["mask"] == "causal",
        local,
        _Group() if several else 1,
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        score_mod=_softcap if softcap else None,
        score_mod_bwd=_softcap_gradient if softcap else None,
    )
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True

    @cute.jit
    def bwd(
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        d_o: cute.Tensor,
        lse_log2: cute.Tensor,
        softmax_d: cute.Tensor,
        dq_sum: cute.Tensor,
        dk: cute.Tensor,
        dv: cute.Tensor,
        cu_seqlens_q: Optional[cute.Tensor],
        cu_seqlens_k: Optional[cute.Tensor],
        scale: Float32,
        softcap: Optional[Float32],
        window_left: Optional[Int32],
        window_right: Optional[Int32],
        stream: cuda.CUstream,
    ):
        kernel(
            q, k, v, d_o, lse_log2, softmax_d, dq_sum, dk, dv, scale, cu_seqlens_q, cu_seqlens_k,
            None, None, window_left, window_right, None, None, None,
            AuxData(None, (softcap,) if softcap is not None else None), None, None, stream,
        )  # fmt: skip

    def rows():
        return _tensor(dtype, 3 if packed else 4, 8)

    def sums():
        return _tensor(Float32, 2 if packed else 3, 4)

    arguments = (
        rows(), rows(), rows(), rows(), sums(), sums(), sums(),
        sums() if several else rows(),
        sums() if several else rows(),
        _tensor(Int32, 1, 1) if packed else None,
        _tensor(Int32, 1, 1) if packed else None,
        Float32(1.0),
        Float32(1.0) if softcap else None,
        Int32(0) if local else None,
        Int32(0) if local else None,
        _stream(),
    )  # fmt: skip
    return Entry(bwd, arguments)


def after_backward(job: dict[str, Any]) -> Entry:
    """A float32 sum to a gradient in the tensors' type, times scale."""
    dtype = DTYPES[job["dtype"]]
    packed = job["layout"] == "packed"
    kernel = FlashAttentionBackwardPostprocess(
        dtype,
        job["head_dim"],
        100,
        job["tile"],
        128,
        1,
        accum_order=AccumTileOrder.TMEM_FRAG_1CTA,
    )
    kernel.check_hdim_oob = True

    @cute.jit
    def post(
        gradient_sum: cute.Tensor,
        gradient: cute.Tensor,
        cu_seqlens: Optional[cute.Tensor],
        scale: Float32,
        stream: cuda.CUstream,
    ):
        kernel(gradient_sum, gradient, scale, cu_seqlens, None, None, None, stream)

    arguments = (
        _tensor(Float32, 2 if packed else 3, 4),
        _tensor(dtype, 3 if packed else 4, 8),
        _tensor(Int32, 1, 1) if packed else None,
        Float32(1.0),
        _stream(),
    )
    return Entry(post, arguments)


KERNELS = {"fwd": forward, "bwd": backward, "pre": before_backward, "post": after_backward}
