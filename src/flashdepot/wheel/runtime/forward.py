"""The forward pass: ``fwd`` over dense batches and ``varlen_fwd`` over packed ones."""

from __future__ import annotations

import math
from typing import Any

import torch

from .generator import Philox, reserve
from .layout import CAUSAL
from .library import DENSE_FORWARD, FORWARD, run_forward
from .numbers import check_dropout, positive_scale, rounded, windows
from .tensors import (
    Address,
    alibi,
    current_stream,
    dense,
    int32,
    packed,
    pages,
    read_kind,
    refuse_shape,
    require_same,
    require_shape,
)

# Names of this module are found sooner than attributes of torch: every call of fwd pays for what it looks up.
_empty, _empty_like, _float32, _int64 = torch.empty, torch.empty_like, torch.float32, torch.int64
_pack, _size = FORWARD.pack, FORWARD.size
_pack_dense, _size_dense = DENSE_FORWARD.pack, DENSE_FORWARD.size
_NOWHERE: Address = (0, 0, 0, 0)
_NO_CACHE = (0, *_NOWHERE, *_NOWHERE, 0, 0, 0, 0, 0, 0)
"""The fields from seqlen_new to rotary_seqlen."""


def fwd(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    alibi_slopes: Any,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: Any,
) -> list[Any]:
    """Attention over q (b, sq, h, d) and k, v (b, sk, hk, d).

    :returns: out as q; softmax_lse (b, h, sq) float32; the debug probabilities, empty unless asked for; rng_state (2)
        int64, which the kernel writes when there is dropout.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    device, dtype = read_kind(q, k, v)
    k_shape = k.shape
    try:
        b, sq, h, d = q.shape
        _, sk, hk, _ = k_shape
    except ValueError:
        _refuse_dense(q, k)
    if k_shape != (b, sk, hk, d) or v.shape != k_shape:
        _refuse_values(k, v, (b, sk, hk, d))
    if b == 0:
        raise RuntimeError("batch size must be positive")
    if out is None:
        out = _empty_like(q)
    else:
        require_same(out, q, device, "Output must have the same dtype as inputs", "out")
        require_shape(out, (b, sq, h, d), "out", "batch_size, seqlen_q, num_heads, head_size")
    where = q.device
    lse = _empty(b, h, sq, dtype=_float32, device=where)
    rng_state = _empty(2, dtype=_int64, device=where)
    if window_size_left < 0 and window_size_right < 0:
        flags, left, right = CAUSAL if is_causal else 0, 0, 0
    else:
        flags, left, right = windows(is_causal, window_size_left, window_size_right, sk)
    if softmax_scale <= 0:
        q, softmax_scale = positive_scale(q, softmax_scale)
    slopes, slopes_stride = alibi(alibi_slopes, device, b, h) if alibi_slopes is not None else (0, 0)
    start = (flags, device, dtype, current_stream(device), b, sq, sk, h, hk, d, 0, 0, softmax_scale)
    tensors = (*dense(q), *dense(k), *dense(v), *dense(out, "Output tensor"), lse.data_ptr(), 0, 0)
    cap = softcap if softcap > 0 else 0.0

    if p_dropout == 0 and not return_softmax:
        arguments = _pack_dense(_size_dense, *start, cap, 0.0, 0, left, right, *tensors, slopes, slopes_stride)
        run_forward(arguments, q)
        return [out, lse, q.new_empty(0), rng_state]

    check_dropout(p_dropout, softcap, return_softmax=return_softmax)
    p = _probabilities(q, b, h, sq, sk, return_softmax=return_softmax)
    arguments = _pack(
        _size,
        *(*start, cap, p_dropout, 0, left, right),
        *(*tensors, slopes, slopes_stride),
        *(0, 0, 0, 0),
        *(0, 0, 0),
        *_NO_CACHE,
        *reserve(gen, device, b, h),
        *(rng_state.data_ptr(), p.data_ptr()),
    )
    run_forward(arguments, q)
    return [out, lse, p, rng_state]


def varlen_fwd(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    seqused_k: Any,
    leftpad_k: Any,
    block_table: Any,
    alibi_slopes: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen: Any,
) -> list[Any]:
    """Attention over q (total_q, h, d) and k, v (total_k, hk, d), or (pages, page_size, hk, d) with a block table.

    :returns: out as q; softmax_lse (h, total_q) float32; the debug probabilities, empty unless asked for; rng_state.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    device, dtype = read_kind(q, k, v)
    b = cu_seqlens_q.numel() - 1
    if b <= 0:
        raise RuntimeError("batch size must be positive")
    cu_q = int32(cu_seqlens_q, "cu_seqlens_q", device, b + 1, "batch_size + 1")
    cu_k = int32(cu_seqlens_k, "cu_seqlens_k", device, b + 1, "batch_size + 1")
    try:
        total_q, h, d = q.shape
        *_, hk, _ = k.shape
    except ValueError:
        refuse_shape(q, "q", "total_q, num_heads, head_size")
    if block_table is None:
        table, table_stride, page_size, total_k = 0, 0, 0, k.shape[0]
        require_shape(k, (total_k, hk, d), "k", "total_k, num_heads_k, head_size")
        require_shape(v, (total_k, hk, d), "v", "total_k, num_heads_k, head_size")
        k_address, v_address = packed(k), packed(v)
    else:
        table, table_stride = pages(block_table, device, b)
        page_size, total_k = paged(k, v, hk, d), 0
        k_address, v_address = dense(k), dense(v)
        if leftpad_k is not None:
            raise RuntimeError("We don't support Paged KV and leftpad_k running at the same time yet")
    used = int32(seqused_k, "seqused_k", device, b, "batch_size")
    leftpad = int32(leftpad_k, "leftpad_k", device, b, "batch_size")
    check_dropout(p_dropout, softcap, return_softmax=return_softmax)
    if out is None:
        out = _empty_like(q)
    else:
        require_same(out, q, device, "Output must have the same dtype as inputs", "out")
        require_shape(out, (total_q, h, d), "out", "total_q, num_heads, head_size")
    lse = _empty(h, total_q, dtype=_float32, device=q.device)
    rng_state = _empty(2, dtype=_int64, device=q.device)
    p = _probabilities(q, b, h, max_seqlen_q, max_seqlen_k, return_softmax=return_softmax)
    if zero_tensors:
        out.zero_()
        lse.fill_(-math.inf)
        p.zero_()
    flags, left, right = windows(is_causal, window_size_left, window_size_right, max_seqlen_k)
    if softmax_scale <= 0:
        q, softmax_scale = positive_scale(q, softmax_scale)
    arguments = _pack(
        _size,
        *(flags, device, dtype, current_stream(device)),
        *(b, max_seqlen_q, max_seqlen_k, h, hk, d, total_q, total_k),
        *(softmax_scale, softcap if softcap > 0 else 0.0, p_dropout, 0, left, right),
        *(*packed(q), *k_address, *v_address, *packed(out, "Output tensor"), lse.data_ptr(), 0, 0),
        *alibi(alibi_slopes, device, b, h),
        *(cu_q, cu_k, used, leftpad),
        *(table, table_stride, page_size),
        *_NO_CACHE,
        *(reserve(gen, device, b, h) if p_dropout > 0 else Philox()),
        *(rng_state.data_ptr(), p.data_ptr()),
    )
    run_forward(arguments, q)
    return [out, lse, p, rng_state]


def paged(k: Any, v: Any, heads_k: int, head_dim: int) -> int:
    """The page size of keys and values in pages."""
    if k.dim() != 4:  # noqa: PLR2004
        refuse_shape(k, "k", "num_blocks, page_block_size, num_heads_k, head_size")
    count, size = k.shape[0], k.shape[1]
    if size % 256 != 0:
        raise RuntimeError("Paged KV cache block size must be divisible by 256")
    for tensor, name in ((k, "k"), (v, "v")):
        shape = (count, size, heads_k, head_dim)
        require_shape(tensor, shape, name, "num_blocks, page_block_size, num_heads_k, head_size")
    page_size: int = size
    return page_size


def _probabilities(q: Any, b: int, h: int, sq: int, sk: int, *, return_softmax: bool) -> Any:
    return q.new_empty(b, h, rounded(sq), rounded(sk)) if return_softmax else q.new_empty(0)


def _refuse_dense(q: Any, k: Any) -> None:
    if q.dim() != 4:  # noqa: PLR2004
        refuse_shape(q, "q", "batch_size, seqlen_q, num_heads, head_size")
    refuse_shape(k, "k", "batch_size, seqlen_k, num_heads_k, head_size")


def _refuse_values(k: Any, v: Any, shape: tuple[int, ...]) -> None:
    for tensor, name in ((k, "k"), (v, "v")):
        require_shape(tensor, shape, name, "batch_size, seqlen_k, num_heads_k, head_size")
