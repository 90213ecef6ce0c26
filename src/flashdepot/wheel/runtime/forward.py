"""The forward pass, ``fwd`` over dense batches and ``varlen_fwd`` over packed ones, and the random numbers of its dropout."""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import torch

from .c_library import check_dropout, positive_scale, rounded, windows
from .layout import CAUSAL
from .library import DENSE_FORWARD, FORWARD, PACKED_FORWARD, run_forward
from .templates import DENSE, PACKED, again, alike, keep
from .tensors import (
    Address,
    alibi,
    current_stream,
    dense,
    int32,
    laid_out,
    packed,
    pages,
    read_kind,
    refuse_shape,
    require_same,
    require_shape,
)

_lock = threading.Lock()
"""torch's own lock of a generator cannot be held over two calls."""

_64_BITS = (1 << 64) - 1


class Philox(NamedTuple):
    """Where a call's random numbers begin, in the order of the fields of fa_fwd_args."""

    seed: int = 0
    offset: int = 0
    seed_pointer: int = 0
    offset_pointer: int = 0
    offset_intragraph: int = 0


def reserve(generator: Any, device: int, batch: int, heads: int) -> Philox:
    """Take the random numbers of one call from a generator, and advance it by what upstream advances it.

    :param generator: of that device; None for torch's default one.
    :raises RuntimeError: while a CUDA graph is captured and this torch has no Generator.philox_state.
    """
    if generator is None:
        generator = torch.cuda.default_generators[device]
    increment = batch * heads * 32  # a multiple of 4, as the generator wants it
    with torch.cuda.device(device):  # whose stream may be the one that is captured
        if hasattr(generator, "philox_state"):
            return _from_state(*generator.philox_state(increment))
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"dropout in a CUDA graph needs torch.Generator.philox_state, which torch {torch.__version__} does "
                "not have: use torch 2.15 or newer, dropout_p=0.0, or leave this call out of the graph"
            )
    with _lock:
        offset = generator.get_offset()
        generator.set_offset(offset + increment)
    return Philox(generator.initial_seed() & _64_BITS, offset)


def _from_state(seed: Any, offset: Any, intragraph: Any) -> Philox:
    """In a graph seed and offset live on the device, where each replay sets them again."""
    if seed.is_cuda:
        return Philox(0, 0, seed.data_ptr(), offset.data_ptr(), intragraph.item() & _64_BITS)
    return Philox(seed.item() & _64_BITS, offset.item() & _64_BITS)


# Names of this module are found sooner than attributes of torch: every call of fwd pays for what it looks up.
_empty, _empty_like, _float32, _int64 = torch.empty, torch.empty_like, torch.float32, torch.int64
_pack, _size = FORWARD.pack, FORWARD.size
_pack_dense, _size_dense = DENSE_FORWARD.pack, DENSE_FORWARD.size
_pack_packed, _size_packed = PACKED_FORWARD.pack, PACKED_FORWARD.size
_NOWHERE: Address = (0, 0, 0, 0)
_NO_TABLE = (0, 0)
_KEYS = "batch_size, seqlen_k, num_heads_k, head_size"
_NO_CACHE = (0, *_NOWHERE, *_NOWHERE, 0, 0, 0, 0, 0, 0)
"""The fields from seqlen_new to rotary_seqlen."""
_NOT_PACKED = (0,) * 7
"""Those from cu_seqlens_q to page_size."""

Mask = tuple[Any, ...]
"""The scale, whether it is causal, the two ends of the window, and the softcap."""

Keys = tuple[Any, ...]
"""The eight arguments of a packed call from cu_seqlens_q to max_seqlen_k, as upstream orders them."""

_Fields = tuple[Any, Any, Any, int, tuple[Any, ...], tuple[Any, ...]]
"""A call as it goes into the struct: q, which lives until the launch; out; softmax_lse; the head dim of v where it is not
that of k, else 0; the fields before dropout and num_splits; and those after."""


def fwd(
    q: Any, k: Any, v: Any, out: Any, alibi_slopes: Any, p_dropout: float, softmax_scale: float, is_causal: bool,
    window_size_left: int, window_size_right: int, softcap: float, return_softmax: bool, gen: Any,
) -> list[Any]:  # fmt: skip
    """Attention over q (b, sq, h, d) and k, v (b, sk, hk, d).

    :returns: out as q; softmax_lse (b, h, sq) float32; the debug probabilities, empty unless asked for; rng_state (2)
        int64, which the kernel writes when there is dropout.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    mask = (softmax_scale, is_causal, window_size_left, window_size_right, softcap)
    if v.shape[-1] != k.shape[-1] == q.shape[-1]:
        require_shape(v, k.shape, "v", _KEYS)
    if p_dropout == 0 and not return_softmax:
        out, lse = attend_dense(q, k, v, out, alibi_slopes, mask)
        return [out, lse, q.new_empty(0), _empty(2, dtype=_int64, device=q.device)]
    *fields, rest = _dense_fields(q, k, v, out, alibi_slopes, mask)
    return _with_random_numbers((*fields, (*rest, *_NOT_PACKED)), p_dropout, gen, return_softmax=return_softmax)


def attend_dense(
    q: Any, k: Any, v: Any, out: Any, alibi_slopes: Any, mask: Mask, flags: int = 0, sink: Any = None
) -> tuple[Any, Any]:
    """Return what :func:`fwd` returns first, out and softmax_lse, without dropout and at less cost.

    ``v`` may have another head dim than k. ``flags`` are those apart from the mask's, ``sink`` is (heads) float32.
    """
    key = None
    if out is alibi_slopes is sink is None and mask[0] > 0:
        key = (*alike(q, k, v), *mask, flags)
        made = again(key, (q.data_ptr(), k.data_ptr(), v.data_ptr()))
        if made is not None:
            return made[0], made[1]
    q, out, lse, wide, start, rest = _dense_fields(q, k, v, out, alibi_slopes, mask, flags)
    arguments = run_forward(_pack_dense(_size_dense, *start, 0.0, 0, *rest), q, wide, sink)
    if key is not None:
        keep(key, DENSE, arguments, q.get_device(), (out, lse))
    return out, lse


def attend_in_one(qkv: Any, mask: Mask) -> Any:
    """Return out of :func:`attend_dense` over the three of qkv (b, s, 3, h, d), without making views of them.

    None where no such call was done before.
    """
    if qkv.dim() != 5:  # noqa: PLR2004
        return None
    b, s, _, h, d = qkv.shape
    batch, row, step, head, last = qkv.stride()
    one = ((b, s, h, d), (batch, row, head, last), qkv.dtype, qkv.device)
    at, step = qkv.data_ptr(), step * qkv.element_size()
    key = (*one, *one, *one, *mask, 0)
    made = again(key, (at, at + step, at + 2 * step))
    return None if made is None else made[0]


def _dense_fields(q: Any, k: Any, v: Any, out: Any, alibi_slopes: Any, mask: Mask, more: int = 0) -> _Fields:
    """Lay out a dense call; the fields after num_splits end with alibi_batch_stride."""
    scale, causal, left, right, softcap = mask
    device, dtype = read_kind(q, k, v)
    k_shape = k.shape
    try:
        b, sq, h, d = q.shape
        _, sk, hk, _ = k_shape
    except ValueError:
        _refuse_dense(q, k)
    if k_shape != (b, sk, hk, d):
        require_shape(k, (b, sk, hk, d), "k", _KEYS)
    wide = 0
    if v.shape != k_shape:
        wide = v.shape[-1]
        require_shape(v, (b, sk, hk, wide), "v", _KEYS)
    if b == 0:
        raise RuntimeError("batch size must be positive")
    if out is None:
        out = q.new_empty(b, sq, h, wide) if wide else _empty_like(q)
    else:
        require_same(out, q, device, "Output must have the same dtype as inputs", "out")
        require_shape(out, (b, sq, h, wide or d), "out", "batch_size, seqlen_q, num_heads, head_size")
    lse = _empty(b, h, sq, dtype=_float32, device=q.device)
    if left < 0 and right < 0:
        flags, left, right = CAUSAL if causal else 0, 0, 0
    else:
        flags, left, right = windows(causal, left, right, sk)
    if scale <= 0:
        q, scale = positive_scale(q, scale)
    slopes = alibi(alibi_slopes, device, b, h) if alibi_slopes is not None else (0, 0)
    sizes = (b, sq, sk, h, hk, d, 0, 0)
    start = (flags | more, device, dtype, current_stream(device), *sizes, scale, softcap if softcap > 0 else 0.0)
    of_q, of_k = (sq * h * d, h * d, d), (sk * hk * d, hk * d, d)
    if wide:
        values, written = dense(v), dense(out, "Output tensor")
    else:
        values, written = laid_out(v, of_k), laid_out(out, of_q, dense, "Output tensor")
    tensors = (*laid_out(q, of_q), *laid_out(k, of_k), *values, *written)
    return q, out, lse, wide, start, (left, right, *tensors, lse.data_ptr(), 0, 0, *slopes)


def varlen_fwd(
    q: Any, k: Any, v: Any, out: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, seqused_k: Any, leftpad_k: Any,
    block_table: Any, alibi_slopes: Any, max_seqlen_q: int, max_seqlen_k: int,
    p_dropout: float, softmax_scale: float, zero_tensors: bool, is_causal: bool, window_size_left: int,
    window_size_right: int, softcap: float, return_softmax: bool, gen: Any,
) -> list[Any]:  # fmt: skip
    """Attention over q (total_q, h, d) and k, v (total_k, hk, d), or (pages, page_size, hk, d) with a block table.

    :returns: out as q; softmax_lse (h, total_q) float32; the debug probabilities, empty unless asked for; rng_state.
    :raises RuntimeError: for arguments or a GPU that the library refuses.
    """
    mask = (softmax_scale, is_causal, window_size_left, window_size_right, softcap)
    keys = (cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes, max_seqlen_q, max_seqlen_k)
    if v.shape[-1] != k.shape[-1] == q.shape[-1]:
        require_shape(v, k.shape, "v", "total_k, num_heads_k, head_size")
    if p_dropout == 0 and not return_softmax and not zero_tensors:
        out, lse = attend_packed(q, k, v, out, keys, mask)
        return [out, lse, q.new_empty(0), _empty(2, dtype=_int64, device=q.device)]
    fields = _packed_fields(q, k, v, out, keys, mask)
    return _with_random_numbers(fields, p_dropout, gen, return_softmax=return_softmax, zero=zero_tensors)


def attend_packed(
    q: Any, k: Any, v: Any, out: Any, keys: Keys, mask: Mask, flags: int = 0, sink: Any = None
) -> tuple[Any, Any]:
    """Return what :func:`varlen_fwd` returns first, out and softmax_lse; ``flags`` and ``sink`` as in a dense call."""
    cu_q, cu_k, used, leftpad, table, slopes, *longest = keys
    key = None
    if out is slopes is sink is used is leftpad is table is None and mask[0] > 0:
        key = (
            *alike(q, k, v),
            *(*longest, *mask, flags),
            *(cu_q.shape, cu_q.stride(), cu_q.dtype, cu_q.device),
            *(cu_k.shape, cu_k.stride(), cu_k.dtype, cu_k.device),
        )
        made = again(key, (q.data_ptr(), k.data_ptr(), v.data_ptr()), (), (cu_q.data_ptr(), cu_k.data_ptr()))
        if made is not None:
            return made[0], made[1]
    q, out, lse, wide, start, rest = _packed_fields(q, k, v, out, keys, mask, flags)
    arguments = run_forward(_pack_packed(_size_packed, *start, 0.0, 0, *rest), q, wide, sink)
    if key is not None:
        keep(key, PACKED, arguments, q.get_device(), (out, lse))
    return out, lse


def _packed_fields(q: Any, k: Any, v: Any, out: Any, keys: Keys, mask: Mask, more: int = 0) -> _Fields:
    """Lay out a packed call; the fields after num_splits end with page_size."""
    cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes, max_seqlen_q, max_seqlen_k = keys
    scale, causal, left, right, softcap = mask
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
    wide = v.shape[-1]
    if block_table is None:
        table, page_size, total_k = _NO_TABLE, 0, k.shape[0]
        require_shape(k, (total_k, hk, d), "k", "total_k, num_heads_k, head_size")
        require_shape(v, (total_k, hk, wide), "v", "total_k, num_heads_k, head_size")
        addresses = (*packed(k), *packed(v))
    else:
        table = pages(block_table, device, b)
        page_size, total_k = paged(k, v, hk, d, wide), 0
        addresses = (*dense(k), *dense(v))
        if leftpad_k is not None:
            raise RuntimeError("We don't support Paged KV and leftpad_k running at the same time yet")
    used = int32(seqused_k, "seqused_k", device, b, "batch_size")
    leftpad = int32(leftpad_k, "leftpad_k", device, b, "batch_size")
    if out is None:
        out = _empty_like(q) if wide == d else q.new_empty(total_q, h, wide)
    else:
        require_same(out, q, device, "Output must have the same dtype as inputs", "out")
        require_shape(out, (total_q, h, wide), "out", "total_q, num_heads, head_size")
    lse = _empty(h, total_q, dtype=_float32, device=q.device)
    flags, left, right = windows(causal, left, right, max_seqlen_k)
    if scale <= 0:
        q, scale = positive_scale(q, scale)
    slopes = alibi(alibi_slopes, device, b, h)
    sizes = (b, max_seqlen_q, max_seqlen_k, h, hk, d, total_q, total_k)
    start = (flags | more, device, dtype, current_stream(device), *sizes, scale, softcap if softcap > 0 else 0.0)
    rows = (0, h * d, d)
    written = laid_out(out, rows, packed, "Output tensor") if wide == d else packed(out, "Output tensor")
    tensors = (*laid_out(q, rows, packed), *addresses, *written)
    varying = (cu_q, cu_k, used, leftpad, *table, page_size)
    rest = (left, right, *tensors, lse.data_ptr(), 0, 0, *slopes, *varying)
    return q, out, lse, wide if wide != d else 0, start, rest


def paged(k: Any, v: Any, heads_k: int, head_dim: int, head_dim_v: int) -> int:
    """The page size of keys and values in pages, any that the library takes."""
    if k.dim() != 4:  # noqa: PLR2004
        refuse_shape(k, "k", "num_blocks, page_block_size, num_heads_k, head_size")
    count, size = k.shape[0], k.shape[1]
    for tensor, name, dim in ((k, "k", head_dim), (v, "v", head_dim_v)):
        shape = (count, size, heads_k, dim)
        require_shape(tensor, shape, name, "num_blocks, page_block_size, num_heads_k, head_size")
    page_size: int = size
    return page_size


def _with_random_numbers(
    fields: _Fields, p_dropout: float, gen: Any, *, return_softmax: bool, zero: bool = False
) -> list[Any]:
    """Do a call with all that upstream's returns: out, softmax_lse, the debug probabilities and rng_state.

    :param zero: clear what no sequence covers.
    """
    q, out, lse, _, start, rest = fields
    _, device, _, _, b, sq, sk, h, *_, softcap = start
    check_dropout(p_dropout, softcap, return_softmax=return_softmax)
    rng_state = _empty(2, dtype=_int64, device=q.device)
    p = q.new_empty(b, h, rounded(sq), rounded(sk)) if return_softmax else q.new_empty(0)
    if zero:
        out.zero_()
        lse.fill_(-math.inf)
        p.zero_()
    philox = reserve(gen, device, b, h) if p_dropout > 0 else Philox()
    arguments = (*start, p_dropout, 0, *rest, *_NO_CACHE, *philox, rng_state.data_ptr(), p.data_ptr())
    run_forward(_pack(_size, *arguments), q)
    return [out, lse, p, rng_state]


def _refuse_dense(q: Any, k: Any) -> None:
    if q.dim() != 4:  # noqa: PLR2004
        refuse_shape(q, "q", "batch_size, seqlen_q, num_heads, head_size")
    refuse_shape(k, "k", _KEYS)
