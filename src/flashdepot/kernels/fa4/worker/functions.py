"""The functions that CuTe compiles around upstream's kernels, one for each kind, and the stand-in tensors for them.

They are the same for every GPU; sm90.py, sm100.py and sm120.py make the kernels. Every extent and stride is a run-time
argument, and so are the softmax scale, softcap, both sides of a window and the number of query heads that share a key
head: what upstream compiles a kernel for each value of, one kernel serves here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from flash_attn.cute import flash_bwd_preprocess
from flash_attn.cute.flash_bwd_preprocess import FlashAttentionBackwardPreprocess
from flash_attn.cute.utils import AuxData
from searching import searching
from walking import Grid

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


def score_mod(job: dict[str, Any]) -> dict[str, Any]:
    """What a forward kernel does to a score, by upstream's name."""
    return {"score_mod": _softcap if job["softcap"] else None}


def score_mods(job: dict[str, Any]) -> dict[str, Any]:
    """The same of a backward kernel, and what it does to a score's gradient."""
    return {**score_mod(job), "score_mod_bwd": _softcap_gradient if job["softcap"] else None}


def _tensor(dtype, rank, elements_aligned):
    stride = (*(cute.sym_int64(divisibility=elements_aligned) for _ in range(rank - 1)), 1)
    shape = tuple(cute.sym_int() for _ in range(rank))
    return cute.runtime.make_fake_tensor(dtype, shape, stride=stride, assumed_align=elements_aligned * dtype.width // 8)


def _rows(job):
    """Rows of each head, in 16 bytes a copy: batch, length, heads, head dim; packed sequences have no batch."""
    return _tensor(DTYPES[job["dtype"]], 3 if job["layout"] in ("packed", "paged_packed") else 4, 8)


def _statistics(job, elements_aligned):
    """A number in float32 for each row, or the sums of each row one after the other: batch, heads, length."""
    return _tensor(Float32, 2 if job["layout"] in ("packed", "paged_packed") else 3, elements_aligned)


def _numbers(wanted, rank=1):
    """Lengths, ends of sequences or pages."""
    return _tensor(Int32, rank, 1) if wanted else None


def _stream():
    return cute.runtime.make_fake_stream()


def forward(job: dict[str, Any], kernel: Callable[..., None], *, has_sink: bool = False) -> Entry:
    """o and lse of q, k and v.

    Layouts: dense, packed, used (dense with a number of keys each), paged, paged_packed (packed queries).
    has_sink: the function takes a sink of each head, of no heads where there is none.
    """
    packed, paged = job["layout"] in ("packed", "paged_packed"), job["layout"] in ("paged", "paged_packed")
    softcap, local = job["softcap"], job["mask"] == "local"

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
        sink: Optional[cute.Tensor],
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
            window_left, window_right, sink,
            aux_data=AuxData(None, (softcap,) if softcap is not None else None),
            stream=stream,
        )  # fmt: skip

    keys = {**job, "layout": "paged"} if paged else job
    arguments = (
        _rows(job), _rows(keys), _rows(keys), _rows(job),
        _statistics(job, 1),
        _numbers(packed),
        _numbers(packed and not paged),
        _numbers(paged or job["layout"] == "used"),
        _numbers(paged, rank=2),
        _tensor(Float32, 1, 1) if has_sink else None,
        Float32(1.0),
        Float32(1.0) if softcap else None,
        Int32(0) if local else None,
        Int32(0) if local else None,
        Int32(1) if job.get("walks") else None,
        _stream(),
    )  # fmt: skip
    return Entry(fwd, arguments)


def backward(job: dict[str, Any], kernel: Callable[..., None]) -> Entry:
    """dk, dv and the sum of dq in float32. With several query heads per key head dk and dv are float32 sums too.

    Of ``whole`` dq itself, and softmax_d: an output too, of no heads where none is wanted, as d_lse is where there is none.
    """
    packed, is_whole, softcap = job["layout"] == "packed", job["kernel"] == "whole", job.get("softcap")
    local = job["mask"] == "local"

    @cute.jit
    def bwd(
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        d_o: cute.Tensor,
        lse: cute.Tensor,
        d_lse: Optional[cute.Tensor],
        softmax_d: cute.Tensor,
        dq: cute.Tensor,
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
        statistics = (lse, softmax_d) if d_lse is None else (lse, d_lse, softmax_d)
        kernel(
            q, k, v, d_o, *statistics, dq, dk, dv, scale, cu_seqlens_q, cu_seqlens_k,
            None, None, window_left, window_right, None, None, None,
            AuxData(None, (softcap,) if softcap is not None else None), None, None, stream,
        )  # fmt: skip

    aligned, sums_keys = 1 if is_whole else 4, job.get("several_heads")
    arguments = (
        _rows(job), _rows(job), _rows(job), _rows(job),
        _statistics(job, aligned),
        _statistics(job, aligned) if is_whole else None,
        _statistics(job, aligned),
        _rows(job) if is_whole else _statistics(job, aligned),
        _statistics(job, aligned) if sums_keys else _rows(job),
        _statistics(job, aligned) if sums_keys else _rows(job),
        _numbers(packed),
        _numbers(packed),
        Float32(1.0),
        Float32(1.0) if softcap else None,
        Int32(0) if local else None,
        Int32(0) if local else None,
        _stream(),
    )  # fmt: skip
    return Entry(bwd, arguments)


def before_backward(job: dict[str, Any]) -> Entry:
    """softmax_d, lse in base 2, and zeros where dq is summed."""
    kernel = searching(FlashAttentionBackwardPreprocess, flash_bwd_preprocess)(
        DTYPES[job["dtype"]], job["head_dim"], job["head_dim"], job["tile_m"], hdim_multiple_of=job["hdim_multiple"]
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

    arguments = (
        _rows(job), _rows(job),
        _statistics(job, 4), _statistics(job, 1), _statistics(job, 4), _statistics(job, 4),
        _numbers(job["layout"] == "packed"),
        _stream(),
    )  # fmt: skip
    return Entry(pre, arguments)


def after_backward(job: dict[str, Any], kernel: Callable[..., None]) -> Entry:
    """A float32 sum to a gradient in the tensors' type, times scale."""

    @cute.jit
    def post(
        gradient_sum: cute.Tensor,
        gradient: cute.Tensor,
        cu_seqlens: Optional[cute.Tensor],
        scale: Float32,
        stream: cuda.CUstream,
    ):
        kernel(gradient_sum, gradient, scale, cu_seqlens, None, None, None, stream)

    lengths = _numbers(job["layout"] == "packed")
    return Entry(post, (_statistics(job, 4), _rows(job), lengths, Float32(1.0), _stream()))
