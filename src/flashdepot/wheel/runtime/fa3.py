"""The functions of FlashAttention-3's ``flash_attn_interface``, and ``torch.ops.flash_attn_3``.

Names, arguments and results are upstream's. What only chooses among its kernels (num_splits, pack_gqa, sm_margin,
scheduler_metadata) is accepted and ignored: the library chooses.
"""

# ruff: noqa: ARG001  (the signatures are upstream's)
from __future__ import annotations

from typing import Any

import torch

from . import fp8
from .attention import How, attend, attention, combine, gradients, how_of, packed_keys, refuse
from .fp8 import NONE_APPENDED, Appended, Words
from .kvcache import fwd_kvcache
from .sequences import attention_in_parts, how_of_gradients, need_parts

_WHY = {
    "seqlens_rotary": "the queries are turned to cache_seqlens; pass that tensor, or none",
    "cu_seqlens_k_new": "new keys are (batch, rows, heads, head_dim)",
    "cu_seqlens_q": "with new keys, queries are (batch, rows, heads, head_dim)",
}

_NAMED = {"out_": "out", "causal": "is_causal", "rotary_interleaved": "is_rotary_interleaved"}
"""What upstream's Python calls arguments of its operator."""

_INTERLEAVED = 29
"""The place of is_rotary_interleaved among them, which is True by default in Python."""


def _require_none(**given: Any) -> None:
    """Refuse what FlashAttention-3 has and this library does not, by the first of its names that is set."""
    for name, value in given.items():
        if value is not None:
            raise refuse(f"{name} is set", _WHY[name])


def _scale_of(q: Any, qv: Any, scale: float | None) -> float | None:
    """Upstream's scale where none is given: a second product has its share in it."""
    return (q.shape[-1] + qv.shape[-1]) ** -0.5 if scale is None and qv is not None else scale


def _attention(q: Any, k: Any, v: Any, how: How, words: Words, *, lse: bool) -> Any:
    """Out, and lse if asked for."""
    if words.are_said(q):
        made = _with_words(q, k, v, how, words)
    elif need_parts(q, k, v, how, words.attention_chunk, words.seqused_q):
        made = attention_in_parts(q, k, v, how, words.attention_chunk, words.seqused_q, lse=lse)
    else:
        made = attention(q, k, v, how, lse=lse)
    return made if lse else made[0]


def _with_words(
    q: Any, k: Any, v: Any, how: How, words: Words, cache: Appended = NONE_APPENDED, out: Any = None, splits: int = 0
) -> tuple[Any, Any]:
    """Out and lse of a call that only family fa3 of the library serves."""
    keys = None
    if how.cu_seqlens_q is not None or how.cu_seqlens_k is not None:
        if q.dim() == 4:  # noqa: PLR2004
            raise refuse("q with a batch dimension over packed keys", "pass cu_seqlens_q too")
        q, k, v, (cu_q, cu_k, used, _, table, _, *longest) = packed_keys(q, k, v, how)
        keys = (cu_q, cu_k, used, table, *longest)
    return fp8.attend(q, k, v, how, words, cache, keys, out, splits)


def flash_attn_func(
    q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False,
    qv: Any = None, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention over q (b, sq, h, d), k (b, sk, hk, d) and v (b, sk, hk, dv): out, and lse (b, h, sq) if asked for."""
    words = Words(qv, q_descale, k_descale, v_descale, attention_chunk)
    scale = _scale_of(q, qv, softmax_scale)
    how = how_of(q, scale, causal, window_size, softcap, deterministic=deterministic, lse=return_attn_probs)
    return _attention(q, k, v, how, words, lse=return_attn_probs)


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    seqused_q: Any = None, seqused_k: Any = None, softmax_scale: float | None = None, causal: bool = False,
    qv: Any = None, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention over packed sequences, q (total_q, h, d): out, and lse (h, total_q) if asked for."""
    words = Words(qv, q_descale, k_descale, v_descale, attention_chunk, seqused_q)
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, None)
    scale = _scale_of(q, qv, softmax_scale)
    how = how_of(q, scale, causal, window_size, softcap, lengths, deterministic=deterministic, lse=return_attn_probs)
    return _attention(q, k, v, how, words, lse=return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Any, softmax_scale: float | None = None, causal: bool = False, q_descale: Any = None,
    k_descale: Any = None, v_descale: Any = None, window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention over qkv (b, s, 3, h, d), or (b, s, h + 2 hk, d) with num_heads_q."""
    if num_heads_q is None:
        q, k, v = qkv.unbind(-3)
    else:
        heads_k = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, heads_k, heads_k], -2)
    words = Words(None, q_descale, k_descale, v_descale, attention_chunk)
    how = how_of(q, softmax_scale, causal, window_size, softcap, deterministic=deterministic, lse=return_attn_probs)
    return _attention(q, k, v, how, words, lse=return_attn_probs)


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, qv: Any = None,
    rotary_cos: Any = None, rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None,
    cache_leftpad: Any = None, page_table: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k_new: Any = None,
    max_seqlen_q: int | None = None, rotary_seqlens: Any = None, q_descale: Any = None, k_descale: Any = None,
    v_descale: Any = None, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    rotary_interleaved: bool = True, scheduler_metadata: Any = None, num_splits: int = 0,
    pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """Attention over a cache, after k and v, if given, were appended to it: out, and lse and two more if asked for."""
    if isinstance(cache_seqlens, int):
        batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        cache_seqlens = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=k_cache.device)
    softmax_scale = _scale_of(q, qv, softmax_scale)
    made = _forward(
        q,
        k_cache,
        v_cache,
        *(k, v, qv, None, cu_seqlens_q, None, cu_seqlens_k_new, None, cache_seqlens, max_seqlen_q, None, page_table),
        *(cache_batch_idx, cache_leftpad, rotary_cos, rotary_sin, rotary_seqlens, q_descale, k_descale, v_descale),
        *(softmax_scale, causal, *window_size, attention_chunk, softcap, rotary_interleaved),
        num_splits=num_splits,
        lse=return_softmax_lse,
    )
    return made if return_softmax_lse else made[0]


def flash_attn_combine(out_partial: Any, lse_partial: Any, out: Any = None, out_dtype: Any = None) -> tuple[Any, Any]:
    """One result of partial ones, (splits, b, s, h, dv) with lse (splits, b, s, h): out (b, s, h, dv), lse (b, s, h)."""
    return combine(out_partial, lse_partial, out, out_dtype)


def get_scheduler_metadata(*_: Any, **__: Any) -> Any:
    """What flash_attn_with_kvcache takes as scheduler_metadata: nothing has to be prepared here."""
    return torch.empty(0, dtype=torch.int32, device="cuda")


def _flash_attn_forward(*arguments: Any, **more: Any) -> tuple[Any, Any, Any, Any]:
    named = {_NAMED.get(name, name): value for name, value in more.items()}
    if len(arguments) <= _INTERLEAVED:
        named.setdefault("is_rotary_interleaved", True)
    return _forward(*arguments, **named)


def _flash_attn_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None, sequed_q: Any = None, sequed_k: Any = None, max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None, dq: Any = None, dk: Any = None, dv: Any = None, *mask: Any, **more: Any,
) -> Any:  # fmt: skip
    lengths = (cu_seqlens_q, cu_seqlens_k, sequed_q, sequed_k, max_seqlen_q, max_seqlen_k)
    return _backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, *lengths, *mask, **more)[0]


def _forward(
    q: Any, k: Any, v: Any, k_new: Any = None, v_new: Any = None, qv: Any = None, out: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, cu_seqlens_k_new: Any = None,
    seqused_q: Any = None, seqused_k: Any = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    page_table: Any = None, kv_batch_idx: Any = None, leftpad_k: Any = None,
    rotary_cos: Any = None, rotary_sin: Any = None, seqlens_rotary: Any = None,
    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None, softmax_scale: float | None = None,
    is_causal: bool = False, window_size_left: int = -1, window_size_right: int = -1, attention_chunk: int = 0,
    softcap: float = 0.0, is_rotary_interleaved: bool = False, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, *, lse: bool = True,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Do ``torch.ops.flash_attn_3.fwd``; the two last results are those of several splits, and empty."""
    if rotary_cos is None or (seqlens_rotary is not None and _are_one(seqlens_rotary, seqused_k)):
        seqlens_rotary = None
    _require_none(cu_seqlens_k_new=cu_seqlens_k_new, seqlens_rotary=seqlens_rotary)
    if page_table is not None and kv_batch_idx is not None:
        page_table, kv_batch_idx = page_table.index_select(0, kv_batch_idx), None
    words = Words(qv, q_descale, k_descale, v_descale, attention_chunk, seqused_q)
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, page_table)
    how = how_of(q, softmax_scale, is_causal, (window_size_left, window_size_right), softcap, lengths, lse=lse)
    cache = Appended(k_new, v_new, kv_batch_idx, leftpad_k)
    _require_none(cu_seqlens_q=cu_seqlens_q if cache.is_any else None)
    if words.are_said(q):
        if rotary_cos is not None:
            raise refuse("rotary_cos is set", "FP8 and qv have no rotary embedding")
        made, statistics = _with_words(q, k, v, how, words, cache, out, num_splits)
    elif attention_chunk > 0 or seqused_q is not None:
        if cache.is_any or rotary_cos is not None:
            raise refuse("attention_chunk or seqused_q", "with new keys only family fa3 has them, for FP8 and qv")
        made, statistics = attention_in_parts(q, k, v, how, attention_chunk, seqused_q, recorded=False)
        made = made if out is None else out.copy_(made)
    elif not cache.is_any and rotary_cos is None:
        made, statistics = attend(q, k, v, how, None, out)
    else:
        appended = (k_new, v_new, seqused_k, rotary_cos, rotary_sin, kv_batch_idx, leftpad_k, page_table, None, out)
        mask = (how.scale, how.causal, how.left, how.right, how.softcap)
        made, statistics = fwd_kvcache(q, k, v, *appended, *mask, is_rotary_interleaved, num_splits, how.flags)
    empty = q.new_empty(0, dtype=torch.float32)
    return made, statistics, empty, empty


def _are_one(tensor: Any, other: Any) -> bool:
    """Whether two tensors are the same memory: upstream's callers name the lengths of a cache twice."""
    return tensor is other or (
        other is not None and tensor.data_ptr() == other.data_ptr() and tensor.shape == other.shape
    )


def _backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any = None, dk: Any = None, dv: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, seqused_q: Any = None, seqused_k: Any = None,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, softmax_scale: float | None = None,
    is_causal: bool = False, window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    deterministic: bool = False, sm_margin: int = 0,
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    """Do ``torch.ops.flash_attn_3.bwd``, which writes dq, dk and dv: softmax_d, and four that nobody reads and are empty."""
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_k, max_seqlen_q, max_seqlen_k, None)
    window = (window_size_left, window_size_right)
    how = how_of(q, softmax_scale, is_causal, window, softcap, lengths, deterministic=deterministic, lse=True)
    how = how_of_gradients(q, k, v, how, seqused_q)
    *_, softmax_d = gradients(dout, q, k, v, out, softmax_lse, how, (dq, dk, dv))
    a, b, c, d = (q.new_empty(0, dtype=torch.float32) for _ in range(4))
    return softmax_d, a, b, c, d


_LENGTHS = "Tensor? cu_seqlens_q = None, Tensor? cu_seqlens_k = None, "
_MAXIMA = "int? max_seqlen_q = None, int? max_seqlen_k = None, "
_MASK = "float? softmax_scale = None, bool is_causal = False, int window_size_left = -1, int window_size_right = -1, "
_SCHEMAS = {
    "fwd": "(Tensor q, Tensor k, Tensor v, Tensor(k_new!)? k_new = None, Tensor(v_new!)? v_new = None, "
    f"Tensor? q_v = None, Tensor(out!)? out = None, {_LENGTHS}Tensor? cu_seqlens_k_new = None, "
    f"Tensor? seqused_q = None, Tensor? seqused_k = None, {_MAXIMA}Tensor? page_table = None, "
    "Tensor? kv_batch_idx = None, Tensor? leftpad_k = None, Tensor? rotary_cos = None, Tensor? rotary_sin = None, "
    "Tensor? seqlens_rotary = None, Tensor? q_descale = None, Tensor? k_descale = None, Tensor? v_descale = None, "
    f"{_MASK}int attention_chunk = 0, float softcap = 0.0, bool is_rotary_interleaved = False, "
    "Tensor? scheduler_metadata = None, int num_splits = 0, bool? pack_gqa = None, int sm_margin = 0) "
    "-> (Tensor(out!), Tensor, Tensor, Tensor)",
    "bwd": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor(dq!)? dq = None, "
    f"Tensor(dk!)? dk = None, Tensor(dv!)? dv = None, {_LENGTHS}Tensor? seqused_q = None, Tensor? seqused_k = None, "
    f"{_MAXIMA}{_MASK}float softcap = 0.0, bool deterministic = False, int sm_margin = 0) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "fwd_combine": "(Tensor out_partial, Tensor lse_partial, Tensor(out!)? out = None, ScalarType? out_dtype = None) "
    "-> (Tensor(out!), Tensor)",
    "get_scheduler_metadata": "(int batch_size, int max_seqlen_q, int max_seqlen_k, int num_heads, int num_heads_k, "
    "int headdim, int headdim_v, ScalarType qkv_dtype, Tensor seqused_k, "
    f"{_LENGTHS}Tensor? cu_seqlens_k_new = None, Tensor? seqused_q = None, Tensor? leftpad_k = None, "
    "int? page_size = None, int max_seqlen_k_new = 0, bool is_causal = False, int window_size_left = -1, "
    "int window_size_right = -1, int attention_chunk = 0, bool has_softcap = False, int num_splits = 0, "
    "bool? pack_gqa = None, int sm_margin = 0) -> Tensor",
}
"""Those of upstream's hopper/flash_api_stable.cpp."""


def _register() -> Any:
    library = torch.library.Library("flash_attn_3", "DEF")
    functions = (_forward, _backward, flash_attn_combine, get_scheduler_metadata)
    for (name, schema), function in zip(_SCHEMAS.items(), functions):
        library.define(f"{name}{schema}")
        library.impl(name, function, "CUDA")
    return library


_operators = _register()
