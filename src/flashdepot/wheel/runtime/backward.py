"""The backward pass: ``bwd`` over dense batches and ``varlen_bwd`` over packed ones."""

from __future__ import annotations

from typing import Any

import torch

from .c_library import check_dropout, positive_scale, rounded, windows
from .layout import CAUSAL, DETERMINISTIC
from .library import BACKWARD, BACKWARD_MORE, forced_family, run_backward, with_more
from .templates import BACKWARD as DIFFERENTIATE
from .templates import keep
from .tensors import (
    DTYPES,
    alibi,
    current_stream,
    dense,
    int32,
    laid_out,
    packed,
    read_kind,
    refuse_shape,
    require_device,
    require_same,
    require_shape,
)

# Names of this module are found sooner than attributes of torch, as in the forward pass.
_empty, _zeros, _float32 = torch.empty, torch.zeros, torch.float32
_pack, _size = BACKWARD.pack, BACKWARD.size
_DENSE_Q = "batch_size, seqlen_q, num_heads, head_size"
_DENSE_K = "batch_size, seqlen_k, num_heads_k, head_size"
_PACKED_Q = "total_q, num_heads, head_size"
_PACKED_K = "total_k, num_heads_k, head_size"


def bwd(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any,
    alibi_slopes: Any, p_dropout: float, softmax_scale: float, is_causal: bool, window_size_left: int,
    window_size_right: int, softcap: float, deterministic: bool, gen: Any, rng_state: Any,  # noqa: ARG001  (gen is upstream's)
) -> list[Any]:  # fmt: skip
    """Gradients of ``fwd``; dq, dk and dv are written where they are given.

    :returns: dq, dk, dv, and softmax_d (b, h, sq up to 128s) float32.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    device, _ = read_kind(q, k, v)
    try:
        b, sq, h, _ = q.shape
        _ = k.shape[3]
    except (ValueError, IndexError):
        refuse_shape(*((k, "k", _DENSE_K) if q.dim() == 4 else (q, "q", _DENSE_Q)))  # noqa: PLR2004
    if b == 0:
        raise RuntimeError("batch size must be positive")
    _check_lse(softmax_lse, device, (b, h, sq), "batch_size, num_heads, seqlen_q")
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv)
    mask = (softmax_scale, is_causal, window_size_left, window_size_right, softcap, deterministic)
    slopes = alibi(alibi_slopes, device, b, h)
    return _checked(tensors, (_DENSE_Q, _DENSE_K), None, mask, slopes, p_dropout, rng_state)


def varlen_bwd(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, alibi_slopes: Any, max_seqlen_q: int, max_seqlen_k: int,
    p_dropout: float, softmax_scale: float, zero_tensors: bool, is_causal: bool, window_size_left: int,
    window_size_right: int, softcap: float, deterministic: bool, gen: Any, rng_state: Any,  # noqa: ARG001  (gen is upstream's)
) -> list[Any]:  # fmt: skip
    """Gradients of ``varlen_fwd``; dq, dk and dv are written where they are given.

    :returns: dq, dk, dv, and softmax_d (h, total_q + 128 * b) float32.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    device, _ = read_kind(q, k, v)
    b = cu_seqlens_q.numel() - 1
    if b <= 0:
        raise RuntimeError("batch size must be positive")
    cu_q = int32(cu_seqlens_q, "cu_seqlens_q", device, b + 1, "batch_size + 1")
    cu_k = int32(cu_seqlens_k, "cu_seqlens_k", device, b + 1, "batch_size + 1")
    try:
        total_q, h, _ = q.shape
        _, _, _ = k.shape
    except ValueError:
        refuse_shape(*((k, "k", _PACKED_K) if q.dim() == 3 else (q, "q", _PACKED_Q)))  # noqa: PLR2004
    _check_lse(softmax_lse, device, (h, total_q), "num_heads, total_q")
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv)
    lengths = (b, max_seqlen_q, max_seqlen_k, cu_q, cu_k)
    mask = (softmax_scale, is_causal, window_size_left, window_size_right, softcap, deterministic)
    slopes = alibi(alibi_slopes, device, b, h)
    words = (_PACKED_Q, _PACKED_K)
    return _checked(tensors, words, lengths, mask, slopes, p_dropout, rng_state, zero=zero_tensors)


def _checked(
    tensors: tuple[Any, ...], words: tuple[str, str], lengths: tuple[int, int, int, int, int] | None,
    mask: tuple[Any, ...], slopes: tuple[int, int], p_dropout: float, rng_state: Any, *, zero: bool = False,
) -> list[Any]:  # fmt: skip
    """Refuse tensors that do not belong together, or do the call: dq, dk, dv and softmax_d."""
    dout, q, k, v, out, _, *given = tensors
    device, (q_words, k_words) = q.get_device(), words
    require_shape(k, (*k.shape[:-1], q.shape[-1]), "k", k_words)
    require_shape(v, (*k.shape[:-1], v.shape[-1]), "v", k_words)
    for tensor, name in ((out, "out"), (dout, "dout")):
        require_same(tensor, q, device, f"query and {name} must have the same dtype", name)
        require_shape(tensor, (*q.shape[:-1], v.shape[-1]), name, q_words)
    check_dropout(p_dropout, mask[4])
    made = []
    for gradient, of, name, shape in zip(given, (q, k, v), ("dq", "dk", "dv"), (q_words, k_words, k_words)):
        if gradient is not None:
            require_same(gradient, q, device, f"{name} must have the same dtype as q", name)
            require_shape(gradient, of.shape, name, shape)
        made.append(torch.empty_like(of) if gradient is None else gradient)
    for tensor in made if zero else ():
        tensor.zero_()
    more: tuple[Any, ...] = (lengths, mask, slopes, p_dropout, _rng_state(rng_state, device))
    return [*made, differentiate(*tensors[:6], *made, *more, zero=zero)]


def differentiate(
    dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, dq: Any, dk: Any, dv: Any,
    lengths: tuple[int, int, int, int, int] | None, mask: tuple[Any, ...], slopes: tuple[int, int] = (0, 0),
    dropout: float = 0.0, rng_state: int = 0, *, d_lse: Any = None, sink: Any = None, d_sink: Any = None,
    flags: int = 0, zero: bool = False, key: Any = None,
) -> Any:  # fmt: skip
    """Write the gradients of tensors that belong together, which nobody checks here, and return softmax_d.

    :param lengths: of a packed call: batch, the longest sequences, and the addresses of cu_seqlens.
    :param mask: scale, whether it is causal, the window's ends, softcap, and whether it is deterministic.
    :param flags: those of the forward pass apart from its mask's.
    :param key: under which the call's struct is kept. Such a call makes no softmax_d, and None is returned.
    """
    device = q.get_device()
    scale, causal, left, right, softcap, deterministic = mask
    if lengths is None:
        b, sq, h, d = q.shape
        _, sk, hk, wide = v.shape
        cu_q = cu_k = total_q = total_k = 0
        address: Any = dense
        rows_q, rows_k = sq * h, sk * hk
        shape: tuple[int, ...] = (b, h, rounded(sq))
    else:
        (total_q, h, d), (total_k, hk, wide) = q.shape, v.shape
        b, sq, sk, cu_q, cu_k = lengths
        address, rows_q, rows_k, shape = packed, 0, 0, (h, total_q + 128 * b)
    of_q, of_k = (rows_q * d, h * d, d), (rows_k * d, hk * d, d)
    of_o, of_v = (of_q, of_k) if wide == d else ((rows_q * wide, h * wide, wide), (rows_k * wide, hk * wide, wide))
    softmax_d = None
    if key is None:
        softmax_d = (_zeros if zero else _empty)(*shape, dtype=_float32, device=q.device)
    if left >= 0 or right >= 0:
        window, left, right = windows(causal, left, right, sk)
    else:
        window, left, right = CAUSAL if causal else 0, 0, 0
    scaled, positive = positive_scale(q, scale) if scale <= 0 else (q, scale)
    arguments = _pack(
        _size,
        *(flags | window | (DETERMINISTIC if deterministic else 0), device, DTYPES[q.dtype], current_stream(device)),
        *(b, sq, sk, h, hk, d, total_q, total_k),
        *(positive, softcap if softcap > 0 else 0.0, dropout, forced_family(), left, right),
        *(*laid_out(scaled, of_q, address), *laid_out(k, of_k, address), *laid_out(v, of_v, address)),
        *(*laid_out(out, of_o, address, "out tensor"), *laid_out(dout, of_o, address, "dout tensor")),
        *(*laid_out(dq, of_q, address, "dq"), *laid_out(dk, of_k, address, "dk"), *laid_out(dv, of_v, address, "dv")),
        *(lse.data_ptr(), 0 if softmax_d is None else softmax_d.data_ptr(), 0, 0, *slopes, cu_q, cu_k, rng_state),
    )
    if wide != d or d_lse is not None or sink is not None:
        pointers = (0 if tensor is None else tensor.data_ptr() for tensor in (d_lse, sink, d_sink))
        arguments = with_more(arguments, BACKWARD_MORE.pack(*pointers, wide))
    arguments = run_backward(arguments, q, zero=zero)
    if scale < 0:
        dq.neg_()
    elif key is not None:
        keep(key, DIFFERENTIATE, arguments, device, (dq, dk, dv))
    return softmax_d


def _check_lse(softmax_lse: Any, device: int, shape: tuple[int, ...], words: str) -> None:
    require_device(softmax_lse, "softmax_lse", device)
    require_shape(softmax_lse, shape, "softmax_lse", words)
    if softmax_lse.dtype != torch.float32 or not softmax_lse.is_contiguous():
        raise RuntimeError("softmax_lse must be contiguous and have dtype fp32")


def _rng_state(rng_state: Any, device: int) -> int:
    if rng_state is None:
        return 0
    require_device(rng_state, "rng_state", device)
    if rng_state.shape != (2,) or rng_state.element_size() != 8 or not rng_state.is_contiguous():  # noqa: PLR2004
        raise RuntimeError("rng_state must be what the forward pass returned: two contiguous 64-bit integers")
    pointer: int = rng_state.data_ptr()
    return pointer
