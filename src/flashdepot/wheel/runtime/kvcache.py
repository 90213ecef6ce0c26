"""The forward pass over a KV cache: ``fwd_kvcache``."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from .c_library import positive_scale, windows
from .forward import paged
from .layout import ROTARY_INTERLEAVED
from .library import CACHE_FORWARD, run_forward
from .templates import CACHE, again, alike, keep
from .tensors import (
    alibi,
    current_stream,
    dense,
    int32,
    pages,
    read_kind,
    refuse_shape,
    require_device,
    require_same,
    require_shape,
)

_pack, _size = CACHE_FORWARD.pack, CACHE_FORWARD.size
_NOTHING_NEW = (0,) * 9


def fwd_kvcache(
    q: Any, kcache: Any, vcache: Any, k: Any, v: Any, seqlens_k: Any, rotary_cos: Any, rotary_sin: Any,
    cache_batch_idx: Any, leftpad_k: Any, block_table: Any, alibi_slopes: Any, out: Any,
    softmax_scale: float, is_causal: bool, window_size_left: int, window_size_right: int, softcap: float,
    is_rotary_interleaved: bool, num_splits: int, flags: int = 0, sink: Any = None,
) -> list[Any]:  # fmt: skip
    """Attention of q (b, sq, h, d) over a cache, after k and v (b, new, hk, d), if given, were appended to it.

    The cache is (batch of the cache, capacity, hk, d), or (pages, page_size, hk, d) with a block table. ``flags`` and
    ``sink``, which upstream's function does not have, are as in a dense call.

    :returns: out as q, and softmax_lse (b, h, sq) float32.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    key = None
    if out is alibi_slopes is rotary_cos is cache_batch_idx is leftpad_k is sink is None and softmax_scale > 0:
        numbers = (softmax_scale, is_causal, window_size_left, window_size_right, softcap, num_splits, flags)
        tables = (block_table, k, v, seqlens_k)
        key = (*alike(q, kcache, vcache, *tables), *numbers)
        at = [0 if tensor is None else tensor.data_ptr() for tensor in tables]
        made = again(key, (q.data_ptr(), kcache.data_ptr(), vcache.data_ptr()), (), at)
        if made is not None:
            return made
    device, dtype = read_kind(q, kcache, vcache, "kcache", "vcache")
    try:
        b, sq, h, d = q.shape
        cached, rows, hk, _ = kcache.shape
        wide = vcache.shape[-1]
    except ValueError:
        if q.dim() != 4:  # noqa: PLR2004
            refuse_shape(q, "q", "batch_size, seqlen_q, num_heads, head_size")
        refuse_shape(kcache, "kcache", "batch_size_c, seqlen_k, num_heads_k, head_size")
    if b == 0:
        raise RuntimeError("batch size must be positive")
    if block_table is None:
        table, table_stride, page_size, sk = 0, 0, 0, rows
        for cache, name, dim in ((kcache, "kcache", d), (vcache, "vcache", wide)):
            require_shape(cache, (cached, rows, hk, dim), name, "batch_size_c, seqlen_k, num_heads_k, head_size")
        if cache_batch_idx is None and cached < b:
            raise RuntimeError(
                f"kcache holds {cached} sequences and q has {b}: pass cache_batch_idx, or a larger cache"
            )
    else:
        if cache_batch_idx is not None:
            raise RuntimeError("Paged KVcache does not support cache_batch_idx")
        if leftpad_k is not None:
            raise RuntimeError("We don't support Paged KV and leftpad_k running at the same time yet")
        table, table_stride = pages(block_table, device, b)
        page_size = paged(kcache, vcache, hk, d, wide)
        sk = block_table.shape[1] * page_size
    if leftpad_k is not None and seqlens_k is None and k is None:  # the library must know that the cache is full
        seqlens_k = torch.full((b,), sk, dtype=torch.int32, device=q.device)
    seqlens = int32(seqlens_k, "seqlens_k", device, b, "batch_size")
    if k is not None:
        _check_new(q, k, v, seqlens_k, device, sk, (b, k.shape[1], hk), (d, wide))
    rotary = _rotary(q, k, rotary_cos, rotary_sin, device) if rotary_cos is not None else (0, 0, 0, 0)
    batch_index = _batch_index(cache_batch_idx, device, b) if cache_batch_idx is not None else 0
    leftpad = int32(leftpad_k, "leftpad_k", device, b, "batch_size") if leftpad_k is not None else 0

    padding = bool(d % 8 or wide % 8)
    cache_k, cache_v, given = kcache, vcache, out
    if padding:
        q, cache_k, cache_v, k, v = (
            tensor if tensor is None else pad(tensor, (0, -tensor.shape[-1] % 8))
            for tensor in (q, kcache, vcache, k, v)
        )
    if out is not None:
        require_same(out, q, device, "Output must have the same dtype as inputs", "out")
        require_shape(out, (b, sq, h, wide), "out", "batch_size, seqlen_q, num_heads, head_size")
        dense(out, "Output tensor")
    if out is None or padding:
        out = torch.empty_like(q) if wide == d else q.new_empty(b, sq, h, cache_v.shape[-1])
    lse = torch.empty(b, h, sq, dtype=torch.float32, device=q.device)
    mask, left, right = windows(is_causal, window_size_left, window_size_right, sk)
    flags |= mask
    if rotary_cos is not None and is_rotary_interleaved:
        flags |= ROTARY_INTERLEAVED
    if softmax_scale <= 0:
        q, softmax_scale = positive_scale(q, softmax_scale)
    new = _NOTHING_NEW if k is None else (k.shape[1], *dense(k, "Key tensor"), *dense(v, "Value tensor"))
    slopes = (0, 0) if alibi_slopes is None else alibi(alibi_slopes, device, b, h)
    arguments = _pack(
        *(_size, flags, device, dtype, current_stream(device), b, sq, sk, h, hk, q.shape[-1], 0, 0),
        *(softmax_scale, softcap if softcap > 0 else 0.0, 0.0, max(num_splits, 0), left, right),
        *(*dense(q), *dense(cache_k), *dense(cache_v), *dense(out, "Output tensor"), lse.data_ptr(), 0, 0),
        *(*slopes, 0, 0, 0, leftpad, table, table_stride, page_size, *new, seqlens, batch_index, *rotary),
    )
    arguments = run_forward(arguments, q, 0 if wide == d else cache_v.shape[-1], sink)
    if key is not None and not padding:
        keep(key, CACHE, arguments, device, (out, lse))
    if padding:
        out = out[..., :wide]
        if given is not None:
            given.copy_(out)
        if k is not None:  # appended to the padded copies
            kcache.copy_(cache_k[..., :d])
            vcache.copy_(cache_v[..., :wide])
    return [out, lse]


def _check_new(
    q: Any, k: Any, v: Any, seqlens_k: Any, device: int, seqlen_k: int, shape: tuple[int, ...], dims: tuple[int, int]
) -> None:
    if v is None:
        raise RuntimeError("If key is supplied, value must also be passed in")
    if seqlens_k is None:
        raise RuntimeError("If key is supplied, seqlens_k must also be passed in")
    if q.shape[1] > seqlen_k:
        raise RuntimeError("If key is supplied, it must have seqlen <= the seqlen of the KV cache")
    for tensor, name, word, dim in ((k, "k", "Key", dims[0]), (v, "v", "Value", dims[1])):
        require_same(tensor, q, device, f"{word} must have the same dtype as query", name)
        require_shape(tensor, (*shape, dim), name, "batch_size, seqlen_knew, num_heads_k, head_size")


def _rotary(q: Any, k: Any, cos: Any, sin: Any, device: int) -> tuple[int, int, int, int]:
    """The two tables' data pointers, the rotary dim and the number of rows."""
    if k is None:
        raise RuntimeError(
            "If rotary cos/sin are provided, new key / value to be appended to KV cache must also be provided"
        )
    if sin is None:
        raise RuntimeError("If rotary cos is provided, rotary sin must also be provided")
    if cos.dim() != 2:  # noqa: PLR2004
        refuse_shape(cos, "rotary_cos", "seqlen_ro, rotary_dim / 2")
    for tensor, name in ((cos, "rotary_cos"), (sin, "rotary_sin")):
        require_same(tensor, q, device, f"{name} must have the same dtype as query", name)
        require_shape(tensor, cos.shape, name, "seqlen_ro, rotary_dim / 2")
        if not tensor.is_contiguous():
            raise RuntimeError(f"{name} must be contiguous")
    return cos.data_ptr(), sin.data_ptr(), 2 * cos.shape[1], cos.shape[0]


def _batch_index(index: Any, device: int, batch: int) -> int:
    require_device(index, "cache_batch_idx", device)
    return int32(index, "cache_batch_idx", device, batch, "batch_size")
