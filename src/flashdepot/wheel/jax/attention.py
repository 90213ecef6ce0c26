"""The functions that programs call: flash_attn's own, in JAX."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .c_library import positive_scale, windows
from .calls import Problem, alike, backward, forward

_WIDEST = 256
_STEP = 8
"""Head dims are multiples of it; another is padded with zeros, which changes no score and no output."""


def flash_attn_func(
    q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, deterministic: bool = False,
    return_lse: bool = False,
) -> Any:  # fmt: skip
    """Softmax attention: ``softmax(softmax_scale * q @ k.T + mask) @ v``.

    :param q: (batch, seqlen_q, heads, head_dim), float16 or bfloat16.
    :param k: (batch, seqlen_k, heads_k, head_dim); ``heads`` is a multiple of ``heads_k`` (GQA, MQA).
    :param v: as ``k``.
    :param softmax_scale: 1 / sqrt(head_dim) when it is not given.
    :param causal: query i sees keys up to i + seqlen_k - seqlen_q.
    :param window_size: how many keys to the left and right of its own a query sees; -1 means no bound.
    :param softcap: scores become ``softcap * tanh(score / softcap)``; 0 means no cap.
    :param deterministic: the gradients have the same bits every time.
    :param return_lse: return the logarithm of each row's sum of exponentials as well, (batch, heads, seqlen_q), float32.
        No gradient flows through it.
    :returns: an array like ``q``, or that and the lse.
    :raises ValueError, TypeError: for shapes, types and numbers that cannot be; the text names them.
    """
    dims = _check(q, k, v, rank=4)
    if not q.shape[0] == k.shape[0]:
        raise ValueError(f"q has a batch of {q.shape[0]} and k of {k.shape[0]}: expected the same")
    options = _Options(softmax_scale, causal, window_size, softcap, deterministic)
    return _run(options, dims, None, return_lse, (q, k, v))


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0, deterministic: bool = False, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Attention of sequences that lie one after the other, without padding.

    :param q: (total_q, heads, head_dim); ``k`` and ``v`` are (total_k, heads_k, head_dim).
    :param cu_seqlens_q: (sequences + 1) int32: where each sequence starts in ``q``, and where the last one ends.
    :param cu_seqlens_k: the same of ``k`` and ``v``.
    :param max_seqlen_q: the length of the longest sequence, a Python number; ``max_seqlen_k`` the same of keys.
    :param return_lse: return the lse as well, (heads, total_q), float32.

    Everything else is as in :func:`flash_attn_func`. Rows of no sequence come out undefined.
    """
    dims = _check(q, k, v, rank=3)
    for name, array in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if array.ndim != 1 or array.dtype != jnp.int32 or array.shape != cu_seqlens_q.shape or not array.shape[0]:
            raise TypeError(f"{name} is {array.dtype}{list(array.shape)}: expected int32[sequences + 1]")
    options = _Options(softmax_scale, causal, window_size, softcap, deterministic)
    longest = (int(max_seqlen_q), int(max_seqlen_k))
    return _run(options, dims, longest, return_lse, (q, k, v, cu_seqlens_q, cu_seqlens_k))


class _Options(NamedTuple):
    softmax_scale: float | None
    causal: bool
    window_size: tuple[int, int]
    softcap: float
    deterministic: bool


def _check(q: Any, k: Any, v: Any, rank: int) -> int:
    """The head dim; :raises ValueError, TypeError: for arrays that do not belong together."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != rank:
            raise ValueError(f"{name} has the shape {array.shape}: expected {rank} dimensions")
        if array.dtype not in (jnp.float16, jnp.bfloat16) or array.dtype != q.dtype:
            raise TypeError(f"{name} is {array.dtype}, q {q.dtype}: expected float16 or bfloat16, the same for all")
    if k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q, k, v have the shapes {q.shape}, {k.shape}, {v.shape}: expected v as k, one head dim")
    if not 0 < q.shape[-1] <= _WIDEST:
        raise ValueError(f"the head dim is {q.shape[-1]}: expected 1 to {_WIDEST}")
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2]:
        raise ValueError(f"q has {q.shape[-2]} heads and k {k.shape[-2]}: expected a multiple")
    return int(q.shape[-1])


def _run(
    options: _Options, head_dim: int, longest: tuple[int, int] | None, return_lse: bool, arrays: tuple[Any, ...]
) -> Any:
    q, k, v, *lengths = arrays
    scale = 1 / math.sqrt(head_dim) if options.softmax_scale is None else float(options.softmax_scale)
    q, scale = positive_scale(q, scale)
    seqlen_k = longest[1] if longest else k.shape[1]
    flags, left, right = windows(options.causal, *options.window_size, seqlen_k)
    problem = Problem(flags, left, right, scale, float(options.softcap), bool(options.deterministic), longest)
    if unaligned := -head_dim % _STEP:
        q, k, v = (jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, unaligned)]) for array in (q, k, v))
    out, lse = _attention(problem, *alike((q, k, v, *lengths), (q, k, v, *lengths)))
    out = out[..., :head_dim]
    return (out, jax.lax.stop_gradient(lse)) if return_lse else out


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(problem: Problem, q: Any, k: Any, v: Any, *lengths: Any) -> tuple[Any, ...]:
    return forward(problem, q, k, v, *lengths)


def _attention_forward(problem: Problem, q: Any, k: Any, v: Any, *lengths: Any) -> tuple[Any, Any]:
    out, lse = forward(problem, q, k, v, *lengths)
    return (out, lse), (q, k, v, out, lse, lengths)


def _attention_backward(problem: Problem, saved: Any, gradients: Any) -> tuple[Any, ...]:
    q, k, v, out, lse, lengths = saved
    d_out, _ = gradients
    return (*backward(problem, q, k, v, out, lse, d_out, *lengths), *(None for _ in lengths))


_attention.defvjp(_attention_forward, _attention_backward)
