"""Hopper's kernels, each as a function that CuTe compiles, and the stand-in tensors it is compiled with.

Every extent and stride is a run-time argument, and so are the softmax scale, softcap, both sides of a window and the
number of query heads that share a key head: what upstream compiles a kernel for each value of, one kernel serves here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from bounded import bounded
from cutlass import Float32, Int32
from flash_attn.cute import flash_bwd_sm90, flash_fwd_sm90
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_preprocess import FlashAttentionBackwardPreprocess
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90
from flash_attn.cute.paged_kv import PagedKVManager
from flash_attn.cute.utils import AuxData
from walking import Grid, walking

DTYPES = {"bf16": cutlass.BFloat16, "fp16": cutlass.Float16}


class Entry(NamedTuple):
    """A function for cute.compile, and its arguments. None for an argument leaves it out of the function's C type."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]


@cute.jit
def _softcap(score, batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors, aux_scalars):
    return aux_scalars[0] * cute.math.tanh(score / aux_scalars[0], fastmath=True)


@cute.jit
def _softcap_gradient(grad, score, batch_idx, head_idx, q_idx, kv_idx, seqlen_info, aux_tensors, aux_scalars):
    capped = cute.math.tanh(score / aux_scalars[0], fastmath=True)
    return grad * (1.0 - capped * capped)


class _Forward(FlashAttentionForwardSm90):
    """Upstream's forward for any number of query heads per key head, with this library's lse for a row without keys."""

    @cute.jit
    def load(self, mQ, mK, *rest):
        self.qhead_per_kvhead = mQ.shape[2] // mK.shape[2]
        super(_Forward, self).load(mQ, mK, *rest)

    @cute.jit
    def epilogue(self, acc_O, lse, *rest):
        for row in cutlass.range(cute.size(lse), unroll_full=True):
            lse[row] = Float32.inf if lse[row] == -Float32.inf else lse[row]
        super(_Forward, self).epilogue(acc_O, lse, *rest)


@cute.jit
def _copy_row_of_head(self, tXsX, tXcX, row_of_head, m, should_load):
    """A row of a page, up to the tensor's own head dim; upstream's reads up to the kernel's."""
    head_dim = self.mK_paged.shape[1]
    inside = cute.make_fragment_like(should_load)
    for k in cutlass.range_constexpr(cute.size(tXsX, mode=[2])):
        column = tXcX[0, 0, k][1]
        inside.fill(should_load[0] and column < head_dim)
        target = tXsX[None, m, k]
        source = row_of_head[None, column // self.async_copy_elems]
        cute.copy(self.gmem_tiled_copy_KV, cute.make_tensor(source.iterator, target.layout), target, pred=inside)


PagedKVManager._copy_row_async = _copy_row_of_head


class _Backward(FlashAttentionBackwardSm90):
    """Upstream's backward for any number of query heads per key head above one (upstream's several stands for two)."""

    @cute.jit
    def __call__(self, q, k, *rest):
        self.heads_per_key_head = q.shape[len(q.shape) - 2] // k.shape[len(k.shape) - 2]
        super(_Backward, self).__call__(q, k, *rest)

    def kernel(self, *arguments):
        return super().kernel(
            *(
                cute.FastDivmodDivisorV2(self.heads_per_key_head)
                if isinstance(argument, cute.FastDivmodDivisorV2)
                else argument
                for argument in arguments
            )
        )


def _tensor(dtype, rank, elements_aligned):
    stride = (*(cute.sym_int64(divisibility=elements_aligned) for _ in range(rank - 1)), 1)
    shape = tuple(cute.sym_int() for _ in range(rank))
    return cute.runtime.make_fake_tensor(dtype, shape, stride=stride, assumed_align=elements_aligned * dtype.width // 8)


def _stream():
    return cute.runtime.make_fake_stream()


def forward(job: dict[str, Any]) -> Entry:
    """o and lse of q, k and v. Layouts: dense, packed, used (dense with a number of keys each), paged."""
    dtype = DTYPES[job["dtype"]]
    layout = job["layout"]
    packed, paged, softcap, local = layout == "packed", layout == "paged", job["softcap"], job["mask"] == "local"
    kind = walking(_Forward, o_apart=job["o_apart"]) if job["walks"] else _Forward
    if layout in ("packed", "used"):
        kind = bounded(kind, flash_fwd_sm90, q_too=False)
    kernel = kind(
        dtype,
        job["head_dim"],
        job["head_dim"],
        1,
        is_causal=job["mask"] == "causal",
        is_local=local,
        pack_gqa=False,
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        num_stages=job["stages"],
        num_threads=384,
        Q_in_regs=False,
        intra_wg_overlap=job["overlap"],
        mma_pv_is_rs=job["p_in_registers"],
        score_mod=_softcap if softcap else None,
        paged_kv_non_tma=paged,
    )
    # An epilogue without TMA stores a row up to the tensor's own head dim, not the kernel's.
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True

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
        _tensor(Int32, 2, 1) if paged else None,
        Float32(1.0),
        Float32(1.0) if softcap else None,
        Int32(0) if local else None,
        Int32(0) if local else None,
        Int32(1) if job["walks"] else None,
        _stream(),
    )  # fmt: skip
    return Entry(fwd, arguments)


def backward(job: dict[str, Any]) -> Entry:
    """dk, dv and the sum of dq in float32. With several query heads per key head dk and dv are float32 sums too."""
    dtype = DTYPES[job["dtype"]]
    packed, several, softcap = job["layout"] == "packed", job["several_heads"], job["softcap"]
    local = job["mask"] == "local"
    kind = _Backward if several else FlashAttentionBackwardSm90
    if packed:
        kind = bounded(kind, flash_bwd_sm90, q_too=True)
    kernel = kind(
        dtype,
        job["head_dim"],
        job["head_dim"],
        2 if several else 1,
        job["mask"] == "causal",
        is_local=local,
        deterministic=False,
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        Q_stage=job["stages_q"],
        dO_stage=job["stages_do"],
        PdS_stage=job["stages_pds"],
        SdP_swapAB=job["swap_sdp"],
        dKV_swapAB=job["swap_dkv"],
        dQ_swapAB=job["swap_dq"],
        AtomLayoutMSdP=job["atoms_sdp"],
        AtomLayoutNdKV=job["atoms_dkv"],
        AtomLayoutMdQ=job["atoms_dq"],
        num_threads=384,
        V_in_regs=False,
        score_mod=_softcap if softcap else None,
        score_mod_bwd=_softcap_gradient if softcap else None,
        dQ_single_wg=job["dq_in_one_warp_group"],
    )

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

    lengths = _tensor(Int32, 1, 1) if packed else None
    arguments = (
        rows(), rows(), rows(), rows(), sums(), sums(), sums(),
        sums() if several else rows(),
        sums() if several else rows(),
        lengths,
        _tensor(Int32, 1, 1) if packed else None,
        Float32(1.0),
        Float32(1.0) if softcap else None,
        Int32(0) if local else None,
        Int32(0) if local else None,
        _stream(),
    )  # fmt: skip
    return Entry(bwd, arguments)


def before_backward(job: dict[str, Any]) -> Entry:
    """softmax_d, lse in base 2, and zeros where dq is summed."""
    dtype = DTYPES[job["dtype"]]
    packed = job["layout"] == "packed"
    kernel = FlashAttentionBackwardPreprocess(
        dtype, job["head_dim"], job["head_dim"], job["tile_m"], hdim_multiple_of=job["hdim_multiple"]
    )
    kernel.check_hdim_v_oob = True

    @cute.jit
    def pre(
        o: cute.Tensor,
        d_o: cute.Tensor,
        softmax_d: cute.Tensor,
        lse: cute.Tensor,
        lse_log2: cute.Tensor,
        dq_sum: cute.Tensor,
        cu_seqlens_q: Optional[cute.Tensor],
        stream: cuda.CUstream,
    ):
        kernel(
            o, d_o, softmax_d, lse, lse_log2, dq_sum, cu_seqlens_q, None, None, None, None,
            Float32(1.0), None, None, stream,
        )  # fmt: skip

    def rows():
        return _tensor(dtype, 3 if packed else 4, 8)

    def statistics(aligned):
        return _tensor(Float32, 2 if packed else 3, aligned)

    arguments = (
        rows(), rows(), statistics(4), statistics(1), statistics(4), statistics(4),
        _tensor(Int32, 1, 1) if packed else None,
        _stream(),
    )  # fmt: skip
    return Entry(pre, arguments)


def after_backward(job: dict[str, Any]) -> Entry:
    """A float32 sum to a gradient in the tensors' type, times scale."""
    dtype = DTYPES[job["dtype"]]
    packed = job["layout"] == "packed"
    kernel = FlashAttentionBackwardPostprocess(
        dtype,
        job["head_dim"],
        90,
        job["tile"],
        job["threads"],
        job["atoms"],
        job["swap"],
        hdim_multiple_of=job["hdim_multiple"],
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
