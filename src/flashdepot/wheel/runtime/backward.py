"""The backward pass: ``bwd`` over dense batches and ``varlen_bwd`` over packed ones."""

from __future__ import annotations

from typing import Any

import torch

from .layout import DETERMINISTIC
from .library import BACKWARD, run_backward
from .numbers import check_dropout, positive_scale, rounded, windows
from .tensors import (
    alibi,
    current_stream,
    dense,
    int32,
    packed,
    read_kind,
    refuse_shape,
    require_device,
    require_same,
    require_shape,
)

_pack, _size = BACKWARD.pack, BACKWARD.size
_DENSE_Q = "batch_size, seqlen_q, num_heads, head_size"
_DENSE_K = "batch_size, seqlen_k, num_heads_k, head_size"
_PACKED_Q = "total_q, num_heads, head_size"
_PACKED_K = "total_k, num_heads_k, head_size"


def bwd(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    softmax_lse: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    alibi_slopes: Any,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen: Any,  # noqa: ARG001  (upstream's signature: the forward pass saved what came from it in rng_state)
    rng_state: Any,
) -> list[Any]:
    """Gradients of ``fwd``; dq, dk and dv are written where they are given.

    :returns: dq, dk, dv, and softmax_d (b, h, sq up to 128s) float32.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    device, dtype = read_kind(q, k, v)
    try:
        b, sq, h, d = q.shape
        _, sk, hk, _ = k.shape
    except ValueError:
        refuse_shape(*((k, "k", _DENSE_K) if q.dim() == 4 else (q, "q", _DENSE_Q)))  # noqa: PLR2004
    if b == 0:
        raise RuntimeError("batch size must be positive")
    _check(q, k, v, out, dout, device, (b, sq, h, d), (b, sk, hk, d), _DENSE_Q, _DENSE_K)
    lse = _lse(softmax_lse, device, (b, h, sq), "batch_size, num_heads, seqlen_q")
    check_dropout(p_dropout, softcap)
    dq, dk, dv = _gradients(q, k, v, dq, dk, dv, device, _DENSE_Q, _DENSE_K)
    softmax_d = torch.empty(b, h, rounded(sq), dtype=torch.float32, device=q.device)
    flags, left, right = windows(is_causal, window_size_left, window_size_right, sk)
    scaled, scale = positive_scale(q, softmax_scale) if softmax_scale <= 0 else (q, softmax_scale)
    arguments = _pack(
        _size,
        *(flags | DETERMINISTIC if deterministic else flags, device, dtype, current_stream(device)),
        *(b, sq, sk, h, hk, d, 0, 0),
        *(scale, softcap if softcap > 0 else 0.0, p_dropout, 0, left, right),
        *(*dense(scaled), *dense(k), *dense(v), *dense(out, "out tensor"), *dense(dout, "dout tensor")),
        *(*dense(dq, "dq"), *dense(dk, "dk"), *dense(dv, "dv")),
        *(lse, softmax_d.data_ptr(), 0, 0),
        *alibi(alibi_slopes, device, b, h),
        *(0, 0, _rng_state(rng_state, device)),
    )
    run_backward(arguments, q)
    if softmax_scale < 0:
        dq.neg_()
    return [dq, dk, dv, softmax_d]


def varlen_bwd(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    softmax_lse: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
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
    deterministic: bool,
    gen: Any,  # noqa: ARG001  (as in bwd)
    rng_state: Any,
) -> list[Any]:
    """Gradients of ``varlen_fwd``; dq, dk and dv are written where they are given.

    :returns: dq, dk, dv, and softmax_d (h, total_q + 128 * b) float32.
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
        total_k, hk, _ = k.shape
    except ValueError:
        refuse_shape(*((k, "k", _PACKED_K) if q.dim() == 3 else (q, "q", _PACKED_Q)))  # noqa: PLR2004
    _check(q, k, v, out, dout, device, (total_q, h, d), (total_k, hk, d), _PACKED_Q, _PACKED_K)
    lse = _lse(softmax_lse, device, (h, total_q), "num_heads, total_q")
    check_dropout(p_dropout, softcap)
    dq, dk, dv = _gradients(q, k, v, dq, dk, dv, device, _PACKED_Q, _PACKED_K)
    softmax_d = torch.empty(h, total_q + 128 * b, dtype=torch.float32, device=q.device)
    if zero_tensors:
        for tensor in (dq, dk, dv, softmax_d):
            tensor.zero_()
    flags, left, right = windows(is_causal, window_size_left, window_size_right, max_seqlen_k)
    scaled, scale = positive_scale(q, softmax_scale) if softmax_scale <= 0 else (q, softmax_scale)
    arguments = _pack(
        _size,
        *(flags | DETERMINISTIC if deterministic else flags, device, dtype, current_stream(device)),
        *(b, max_seqlen_q, max_seqlen_k, h, hk, d, total_q, total_k),
        *(scale, softcap if softcap > 0 else 0.0, p_dropout, 0, left, right),
        *(*packed(scaled), *packed(k), *packed(v), *packed(out, "out tensor"), *packed(dout, "dout tensor")),
        *(*packed(dq, "dq"), *packed(dk, "dk"), *packed(dv, "dv")),
        *(lse, softmax_d.data_ptr(), 0, 0),
        *alibi(alibi_slopes, device, b, h),
        *(cu_q, cu_k, _rng_state(rng_state, device)),
    )
    run_backward(arguments, q, zero=zero_tensors)
    if softmax_scale < 0:
        dq.neg_()
    return [dq, dk, dv, softmax_d]


def _check(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    dout: Any,
    device: int,
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    q_words: str,
    k_words: str,
) -> None:
    for tensor, name in ((k, "k"), (v, "v")):
        require_shape(tensor, k_shape, name, k_words)
    for tensor, name in ((out, "out"), (dout, "dout")):
        require_same(tensor, q, device, f"query and {name} must have the same dtype", name)
        require_shape(tensor, q_shape, name, q_words)


def _gradients(q: Any, k: Any, v: Any, dq: Any, dk: Any, dv: Any, device: int, q_words: str, k_words: str) -> list[Any]:
    given = ((dq, q, "dq", q_words), (dk, k, "dk", k_words), (dv, v, "dv", k_words))
    gradients = []
    for gradient, of, name, words in given:
        if gradient is None:
            gradients.append(torch.empty_like(of))
            continue
        require_same(gradient, q, device, f"{name} must have the same dtype as q", name)
        require_shape(gradient, of.shape, name, words)
        gradients.append(gradient)
    return gradients


def _lse(softmax_lse: Any, device: int, shape: tuple[int, ...], words: str) -> int:
    require_device(softmax_lse, "softmax_lse", device)
    require_shape(softmax_lse, shape, "softmax_lse", words)
    if softmax_lse.dtype != torch.float32 or not softmax_lse.is_contiguous():
        raise RuntimeError("softmax_lse must be contiguous and have dtype fp32")
    pointer: int = softmax_lse.data_ptr()
    return pointer


def _rng_state(rng_state: Any, device: int) -> int:
    if rng_state is None:
        return 0
    require_device(rng_state, "rng_state", device)
    if rng_state.shape != (2,) or rng_state.element_size() != 8 or not rng_state.is_contiguous():  # noqa: PLR2004
        raise RuntimeError("rng_state must be what the forward pass returned: two contiguous 64-bit integers")
    pointer: int = rng_state.data_ptr()
    return pointer
