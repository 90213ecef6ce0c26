"""Forward calls with words that only family fa3 of the library knows: FP8 with factors, and qv; with chunks, queries in use.

They have no gradient. What the library cannot do of them it refuses itself, and says what can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .layout import BF16, CAUSAL, E4M3, FORWARD_FIELDS, WINDOW_LEFT, WINDOW_RIGHT
from .library import WHOLE_FORWARD, forced_family, run_forward
from .tensors import DTYPES, current_stream, dense, int32, pages, require_device, require_shape

FP8 = getattr(torch, "float8_e4m3fn", None)

_NAMES = [name for name, code in FORWARD_FIELDS if "x" not in code]


class Words(NamedTuple):
    """What a call says in addition to the words that every family knows. Factors are (b, hk), ``qv`` is as q with v's head dim."""

    qv: Any = None
    q_descale: Any = None
    k_descale: Any = None
    v_descale: Any = None
    attention_chunk: int = 0
    seqused_q: Any = None

    def are_said(self, q: Any) -> bool:
        """Whether the call needs this module."""
        tensors = (self.qv, self.q_descale, self.k_descale, self.v_descale)
        return q.dtype == FP8 or any(tensor is not None for tensor in tensors)


class Appended(NamedTuple):
    """What a call over a cache may have: new keys and values, which sequences of the cache, keys to skip."""

    k: Any = None
    v: Any = None
    batch_idx: Any = None
    leftpad: Any = None

    @property
    def is_any(self) -> bool:
        """Whether the call has one of them."""
        return any(tensor is not None for tensor in self)


NONE_APPENDED = Appended()


def _tensor(fields: dict[str, Any], name: str, tensor: Any, *, packed: bool = False) -> None:
    batch, row, head = (0, *tensor.stride()[:2]) if packed else dense(tensor)[1:]
    fields |= {f"{name}.data": tensor.data_ptr(), f"{name}.batch_stride": batch}
    fields |= {f"{name}.row_stride": row, f"{name}.head_stride": head}


def _factors(words: Words, device: int, batch: int, heads_k: int) -> tuple[dict[str, Any], list[Any]]:
    """The fields of the factors, which have one layout, and the tensors that they point to."""
    given = {
        name: factor for name, factor in words._asdict().items() if name.endswith("descale") and factor is not None
    }
    for name, factor in given.items():
        require_device(factor, name, device)
        require_shape(factor, (batch, heads_k), name, "batch_size, num_heads_k")
        if factor.dtype != torch.float32:
            raise RuntimeError(f"{name} must have dtype float32")
    if len({factor.stride() for factor in given.values()}) > 1:
        given = {name: factor.contiguous() for name, factor in given.items()}
    fields: dict[str, Any] = {name: factor.data_ptr() for name, factor in given.items()}
    for factor in given.values():
        fields["descale_batch_stride"], fields["descale_head_stride"] = factor.stride()
    return fields, list(given.values())


def attend(
    q: Any, k: Any, v: Any, how: Any, words: Words, cache: Appended, keys: tuple[Any, ...] | None, out: Any, splits: int
) -> tuple[Any, Any]:
    """Return out, bf16 where q is FP8, and lse.

    :param how: as ``attention.How``.
    :param keys: of a packed call: cu_seqlens_q, cu_seqlens_k, seqused_k, page_table and both longest sequences.
    :raises RuntimeError: with the library's own text, for what it refuses. A backward pass raises it too.
    """
    given = (q, k, v, words.qv)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given):
        return _WithoutBackward.apply(lambda: _attend(q, k, v, how, words, cache, keys, out, splits), *given)  # type: ignore[no-any-return]
    return _attend(q, k, v, how, words, cache, keys, out, splits)


class _WithoutBackward(torch.autograd.Function):  # type: ignore[misc]
    """What has no gradient, said when one is asked for."""

    @staticmethod
    def forward(_: Any, attended: Callable[[], tuple[Any, Any]], *_tensors: Any) -> tuple[Any, Any]:
        return attended()

    @staticmethod
    def backward(*_: Any) -> Any:
        raise RuntimeError("FP8 and qv have no backward pass")


def _attend(
    q: Any, k: Any, v: Any, how: Any, words: Words, cache: Appended, keys: tuple[Any, ...] | None, out: Any, splits: int
) -> tuple[Any, Any]:
    device = q.get_device()
    code = E4M3 if q.dtype == FP8 else DTYPES.get(q.dtype)
    if code is None or k.dtype != q.dtype or v.dtype != q.dtype:
        raise RuntimeError(
            f"q, k and v must have one dtype of fp16, bf16 and float8_e4m3fn: {q.dtype}, {k.dtype}, {v.dtype}"
        )
    for tensor, name in ((q, "q"), (k, "k"), (v, "v")):
        require_device(tensor, name, device)
        if tensor.stride(-1) != 1:
            raise RuntimeError(f"{name} must have contiguous last dimension")
    heads, dim, dim_v, heads_k = q.shape[-2], q.shape[-1], v.shape[-1], k.shape[-2]
    dtype = torch.bfloat16 if code == E4M3 else q.dtype
    if out is None:
        out = torch.empty(*q.shape[:-1], dim_v, dtype=dtype, device=q.device)
    elif out.dtype != dtype:
        raise RuntimeError(f"out must have dtype {dtype}")
    require_shape(out, (*q.shape[:-1], dim_v), "out", "as q, with the head dim of v")
    packed = keys is not None
    table = how.page_table if keys is None else keys[3]
    fields: dict[str, Any] = dict.fromkeys(_NAMES, 0)
    flags = how.flags | (CAUSAL if how.causal else 0)
    if how.left >= 0:
        flags, fields["window_left"] = flags | WINDOW_LEFT, how.left
    if how.right >= 0 and not how.causal:
        flags, fields["window_right"] = flags | WINDOW_RIGHT, how.right
    fields |= {"size": WHOLE_FORWARD.size, "flags": flags, "device": device, "dtype": code, "scale": how.scale}
    fields |= {"softcap": max(how.softcap, 0.0), "num_splits": max(splits, 0), "stream": current_stream(device)}
    fields |= {"heads_q": heads, "heads_k": heads_k, "head_dim": dim, "head_dim_v": dim_v, "family": forced_family()}
    fields |= {"out_dtype": BF16 if code == E4M3 else 0, "attention_chunk": words.attention_chunk}
    if keys is not None:
        cu_q, cu_k, used, _, longest_q, longest_k = keys
        batch = cu_q.numel() - 1
        fields |= {"total_q": q.shape[0], "total_k": 0 if table is not None else k.shape[0]}
        fields |= {"cu_seqlens_q": int32(cu_q, "cu_seqlens_q", device, batch + 1, "batch_size + 1")}
        fields |= {"cu_seqlens_k": int32(cu_k, "cu_seqlens_k", device, batch + 1, "batch_size + 1")}
        fields |= {"seqused_k": int32(used, "seqused_k", device, batch, "batch_size")}
        fields |= {"seqlen_q": longest_q, "seqlen_k": longest_k}
        lse = torch.empty(heads, q.shape[0], dtype=torch.float32, device=q.device)
    else:
        batch = q.shape[0]
        rows = k.shape[1] if table is None else table.shape[1] * k.shape[1]
        fields |= {"seqlen_q": q.shape[1], "seqlen_k": rows}
        fields |= {"cache_seqlens": int32(how.seqused_k, "cache_seqlens", device, batch, "batch_size")}
        fields |= {"cache_batch_idx": int32(cache.batch_idx, "cache_batch_idx", device, batch, "batch_size")}
        lse = torch.empty(batch, heads, q.shape[1], dtype=torch.float32, device=q.device)
    fields |= {"batch": batch, "lse": lse.data_ptr()}
    fields |= {"seqused_q": int32(words.seqused_q, "seqused_q", device, batch, "batch_size")}
    fields |= {"leftpad_k": int32(cache.leftpad, "cache_leftpad", device, batch, "batch_size")}
    if table is not None:
        fields["block_table"], fields["block_table_stride"] = pages(table, device, batch)
        fields["page_size"] = k.shape[1]
    _tensor(fields, "q", q, packed=packed)
    _tensor(fields, "o", out, packed=packed)
    for name, tensor in (("k", k), ("v", v)):
        _tensor(fields, name, tensor, packed=packed and table is None)
    if words.qv is not None:
        require_shape(words.qv, (*q.shape[:-1], dim_v), "qv", "as q, with the head dim of v")
        _tensor(fields, "qv", words.qv, packed=packed)
    if cache.k is not None:
        fields["seqlen_new"] = cache.k.shape[1]
        for name, tensor in (("k_new", cache.k), ("v_new", cache.v)):
            _tensor(fields, name, tensor)
    factors, alive = _factors(words, device, batch, heads_k)
    fields |= factors
    run_forward(WHOLE_FORWARD.pack(*(fields[name] for name in _NAMES)), q)
    del alive
    return out, lse
