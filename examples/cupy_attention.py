"""Attention on CuPy arrays, through the C ABI. Usage: python cupy_attention.py LIBRARY_FOLDER."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_float, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path

import cupy as cp

FA_STATUS_OK, FA_DTYPE_FP16, FA_FLAG_CAUSAL = 0, 1, 1


class Tensor(ctypes.Structure):
    """fa_tensor: data, three strides in elements, and room that is zero."""

    _fields_ = [("data", c_void_p), ("batch", c_int64), ("row", c_int64), ("head", c_int64), ("reserved", c_int64 * 2)]


class ForwardArgs(ctypes.Structure):
    """fa_fwd_args up to `lse`: a struct that ends earlier reads as zeros beyond its end."""

    _fields_ = [
        ("size", c_uint32), ("flags", c_uint32), ("device", c_int32), ("dtype", c_int32), ("stream", c_void_p),
        ("batch", c_int32), ("seqlen_q", c_int32), ("seqlen_k", c_int32),
        ("heads_q", c_int32), ("heads_k", c_int32), ("head_dim", c_int32),
        ("total_q", c_int64), ("total_k", c_int64),
        ("scale", c_float), ("softcap", c_float), ("dropout", c_float), ("num_splits", c_int32),
        ("window_left", c_int32), ("window_right", c_int32),
        ("q", Tensor), ("k", Tensor), ("v", Tensor), ("o", Tensor), ("lse", c_void_p),
    ]  # fmt: skip


def tensor(array: cp.ndarray) -> Tensor:
    """Describe a (batch, length, heads, dim) array."""
    batch, row, head, _ = (stride // array.itemsize for stride in array.strides)
    return Tensor(array.data.ptr, batch, row, head)


def attention(library: ctypes.CDLL, q: cp.ndarray, k: cp.ndarray, v: cp.ndarray, *, causal: bool) -> cp.ndarray:
    """Softmax attention of fp16 arrays of shape (batch, length, heads, dim), on CuPy's current stream."""
    batch, length, heads, dim = q.shape
    out = cp.empty_like(q)
    lse = cp.empty((batch, heads, length), dtype=cp.float32)
    args = ForwardArgs(size=ctypes.sizeof(ForwardArgs), flags=FA_FLAG_CAUSAL if causal else 0, dtype=FA_DTYPE_FP16)
    args.num_splits = 1  # needs no workspace
    args.stream, args.device = cp.cuda.get_current_stream().ptr, q.device.id
    args.batch, args.seqlen_q, args.seqlen_k = batch, length, k.shape[1]
    args.heads_q, args.heads_k, args.head_dim = heads, k.shape[2], dim
    args.q, args.k, args.v, args.o, args.lse = tensor(q), tensor(k), tensor(v), tensor(out), lse.data.ptr
    if library.fa_fwd(ctypes.byref(args)) != FA_STATUS_OK:
        raise RuntimeError(library.fa_last_error().decode())
    return out


def reference(q: cp.ndarray, k: cp.ndarray, v: cp.ndarray, *, causal: bool) -> cp.ndarray:
    """The same in float64."""
    q, k, v = (a.astype(cp.float64).transpose(0, 2, 1, 3) for a in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / q.shape[-1] ** 0.5
    if causal:
        scores = cp.where(cp.tri(*scores.shape[-2:], dtype=bool), scores, -cp.inf)
    weights = cp.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def main() -> int:
    """Compare with the reference, then time a larger problem."""
    library = ctypes.CDLL(str(Path(sys.argv[1]) / "lib/shared/libflashattention.so"))
    library.fa_last_error.restype = ctypes.c_char_p
    random = cp.random.default_rng(0)

    def inputs(*shape: int) -> list[cp.ndarray]:
        return [random.standard_normal(shape, dtype=cp.float32).astype(cp.float16) for _ in "qkv"]

    worst = 0.0
    for causal in (False, True):
        q, k, v = inputs(2, 300, 4, 128)
        found = attention(library, q, k, v, causal=causal)
        worst = max(worst, float(cp.abs(found - reference(q, k, v, causal=causal)).max()))
    q, k, v = inputs(4, 4096, 16, 128)
    attention(library, q, k, v, causal=False)
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    for _ in range(20):
        attention(library, q, k, v, causal=False)
    end.record()
    end.synchronize()
    seconds = cp.cuda.get_elapsed_time(begin, end) / 20 / 1e3
    print(f"largest error {worst:.1e}; {4 * 4 * 16 * 4096**2 * 128 / seconds / 1e12:.0f} TFLOP/s")
    return 0 if worst < 5e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
