"""Attention in the words that FlashAttention-3 and -4 share, by any family that serves the call.

A call is dense, packed on either side, or over a cache; :func:`attend` finds out which of the C library's three kinds says
the same. Values may have another head dim than keys.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .backward import differentiate
from .dispatch import CAN_ASK, is_compiling, is_plain
from .forward import attend_dense, attend_packed
from .kvcache import fwd_kvcache
from .layout import EMPTY_LSE_NEG_INF
from .templates import again
from .tensors import NotContiguousError, int32


class How(NamedTuple):
    """What is the same in the forward and the backward pass. A window's end below 0 is open.

    ``flags`` are those of the C library apart from the mask's: whether the lse of a row that sees no key is -inf.
    """

    cu_seqlens_q: Any = None
    cu_seqlens_k: Any = None
    seqused_k: Any = None
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    page_table: Any = None
    scale: float = 1.0
    causal: bool = False
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    deterministic: bool = False
    flags: int = 0


def how_of(
    q: Any, scale: float | None, causal: bool, window: tuple[int | None, int | None], softcap: float,
    lengths: tuple[Any, ...] = (None,) * 6, *, deterministic: bool = False, lse: bool = False,
) -> How:  # fmt: skip
    """Put a call's arguments in order: ``lengths`` from cu_seqlens_q to page_table, None or -1 for an open window's end.

    ``lse``: the caller reads it, as FlashAttention-3 and -4 write it.
    """
    left, right = window
    left, right = -1 if left is None else int(left), -1 if right is None else int(right)
    sees_all = lengths[0] is lengths[1] is lengths[2] is lengths[5] is None and not causal and left < 0 and right < 0
    flags = EMPTY_LSE_NEG_INF if lse and not sees_all else 0
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    mask: tuple[Any, ...] = (scale, causal, left, right, softcap, deterministic, flags)
    return How(*lengths, *mask)


def refuse(what: str, why: str) -> RuntimeError:
    """Make the error of what this library does not do."""
    return RuntimeError(f"{what}: {why} (this flash-attn is flashdepot's, whose kernels are compiled ahead of time)")


def attention(q: Any, k: Any, v: Any, how: How, sink: Any = None, *, lse: bool = True) -> tuple[Any, Any]:
    """Return out, and the lse of each row; differentiable in q, k, v and sink, (heads) of any type.

    :param lse: whether it is wanted: without it a call with a gradient costs less, and the second result is None.
    """
    if q.shape[0] == 0 and q.dim() == 4:  # noqa: PLR2004  (FlashAttention-3 and -4 take an empty batch)
        b, sq, h, _ = q.shape
        return q[..., :1].expand(b, sq, h, v.shape[-1]), torch.empty(b, h, sq, dtype=torch.float32, device=q.device)
    if not is_ordinary(q, k, v, sink):
        if OPERATOR is None:
            raise refuse("torch.compile and tensor subclasses", "they need torch 2.4 or newer")
        out, statistics = OPERATOR(q, k, v, sink, *how)
        return out, statistics
    if torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)
    ):
        made = differentiable(q, k, v, how, sink, lse)
        return made if lse else (made, None)
    return attend(q, k, v, how, sink)


def is_ordinary(q: Any, k: Any, v: Any, sink: Any = None) -> bool:
    """Whether a call is for :func:`attend`: in eager mode, with plain tensors, that nothing watches."""
    return not is_compiling() and CAN_ASK and is_plain((q, k, v)) and (sink is None or is_plain((sink,)))


def attend(q: Any, k: Any, v: Any, how: How, sink: Any = None, out: Any = None) -> tuple[Any, Any]:
    """Return out, written where it is given, and lse; nothing is recorded for a backward pass."""
    cu_q, cu_k, used, _, _, table, *_ = how
    mask: tuple[Any, ...] = how[6:11]
    if cu_q is cu_k is used is table is sink is out is None:
        try:
            return attend_dense(q, k, v, None, None, mask, how.flags)
        except NotContiguousError:
            pass
    q, k, v, wide = _contiguous(q), _contiguous(k), _contiguous(v), v.shape[-1]
    sink = None if sink is None else sink.float()
    into = out if out is not None and out.shape == (*q.shape[:-1], wide) else None
    if cu_q is not None or cu_k is not None:
        shape = q.shape
        q, k, v, keys = packed_keys(q, k, v, how)
        given = None if into is None else into.flatten(0, -3)
        made, lse = attend_packed(q, k, v, given, keys, mask, how.flags, sink)
        if len(shape) == 4:  # noqa: PLR2004
            made = made.unflatten(0, shape[:2])
            lse = lse.view(lse.shape[0], shape[0], shape[1]).transpose(0, 1).contiguous()
    elif table is not None or used is not None:
        nothing_new: tuple[Any, ...] = (None, None, used, None, None, None, None, table, None)
        cached: tuple[Any, ...] = (*nothing_new, into, *mask, False, 0, how.flags, sink)
        made, lse = fwd_kvcache(q, k, v, *cached)
    else:
        made, lse = attend_dense(q, k, v, into, None, mask, how.flags, sink)
    if out is not None and made.data_ptr() != out.data_ptr():
        out.copy_(made)
        made = out
    return made, lse


def gradients(
    d_out: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, how: How,
    into: tuple[Any, Any, Any] = (None, None, None), *, d_lse: Any = None, sink: Any = None, key: Any = None,
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    """Return dq, dk and dv, written where they are given, the gradient of sink or None, and softmax_d.

    :param key: as :func:`differentiate` takes it.
    """
    if how.seqused_k is not None or how.page_table is not None:
        raise refuse("a backward pass with seqused_k or page_table", "no kernel has one; pass cu_seqlens_k instead")
    lengths = None
    if how.cu_seqlens_q is not None or how.cu_seqlens_k is not None:
        lengths = _lengths(q, k, how)
    given = (d_out, q, k, v, out)
    d_out, q, k, v, out = (_contiguous(tensor) for tensor in given)
    if any(tensor is not copy for tensor, copy in zip(given, (d_out, q, k, v, out))):
        key = None
    dq, dk, dv = (given if given is not None else _empty_like(of) for given, of in zip(into, (q, k, v)))
    d_sink, scores = None, None
    if sink is not None:
        scores = sink.float()
        d_sink = _empty_like(scores)
    softmax_d = differentiate(
        *(d_out, q, k, v, out, lse, dq, dk, dv, lengths, how[6:12]),
        d_lse=None if d_lse is None else d_lse.contiguous(),
        sink=scores,
        d_sink=d_sink,
        flags=how.flags,
        key=key,
    )
    return dq, dk, dv, None if d_sink is None else d_sink.to(sink.dtype), softmax_d


_empty_like = torch.empty_like


def _lengths(q: Any, k: Any, how: How) -> tuple[int, int, int, int, int]:
    if how.cu_seqlens_q is None or how.cu_seqlens_k is None:
        raise refuse("a backward pass with cu_seqlens of one side", "pass cu_seqlens_q and cu_seqlens_k")
    ends, device = how.cu_seqlens_q.shape[0], q.get_device()
    cu_q = int32(how.cu_seqlens_q, "cu_seqlens_q", device, ends, "batch_size + 1")
    cu_k = int32(how.cu_seqlens_k, "cu_seqlens_k", device, ends, "batch_size + 1")
    return ends - 1, _longest(how.max_seqlen_q, q), _longest(how.max_seqlen_k, k), cu_q, cu_k


def packed_keys(q: Any, k: Any, v: Any, how: How) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """A call with sequences on either side as one with sequences on both, and what comes after out in attend_packed."""
    cu_q, cu_k, used, table = how.cu_seqlens_q, how.cu_seqlens_k, how.seqused_k, how.page_table
    longest_q, longest_k = how.max_seqlen_q, how.max_seqlen_k
    if cu_q is None:
        longest_q = q.shape[1]
        cu_q, q = _starts(q), q.flatten(0, 1)
    if cu_k is None and table is None and used is not None and how.cu_seqlens_q is not None:
        table = torch.arange(k.shape[0], dtype=torch.int32, device=k.device).unsqueeze(1)  # a page is a sequence
    if table is not None:
        capacity = table.shape[1] * k.shape[1]
        longest_k = longest_k or capacity
        if cu_k is None:
            used = table.new_full((table.shape[0],), capacity) if used is None else used
            cu_k, used = pad(used.cumsum(0, dtype=torch.int32), (1, 0)), None
    elif cu_k is None:
        longest_k = k.shape[1]
        cu_k, k, v = _starts(k), k.flatten(0, 1), v.flatten(0, 1)
    rest = (_longest(longest_q, q), _longest(longest_k, k))
    return q, k, v, (cu_q, cu_k, used, None, table, None, *rest)


def _starts(dense: Any) -> Any:
    batch, rows = dense.shape[:2]
    return torch.arange(0, (batch + 1) * rows, max(rows, 1), dtype=torch.int32, device=dense.device)[: batch + 1]


def _longest(given: Any, packed: Any) -> int:
    """The longest sequence, or what none can exceed."""
    return packed.shape[0] if given is None else int(given)


def _contiguous(tensor: Any) -> Any:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def combine(out_partial: Any, lse_partial: Any, out: Any, out_dtype: Any) -> tuple[Any, Any]:
    """Return out, written where it is given, and lse of parts of the keys, (splits, ..., h, dv) and (splits, ..., h)."""
    lse = lse_partial.logsumexp(0)
    weights = (lse_partial - lse.masked_fill(lse == -math.inf, 0.0)).exp()
    made = (weights.unsqueeze(-1) * out_partial).sum(0).to(out_dtype or out_partial.dtype)
    return (made if out is None else out.copy_(made)), lse


class _Attention(torch.autograd.Function):  # type: ignore[misc]  # torch is Any where types are checked
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, how: How, sink: Any, wants_lse: bool) -> Any:
        out, lse = attend(q, k, v, how, sink)
        ctx.save_for_backward(q, k, v, out, lse, sink)
        ctx.how, ctx.like = how, _like(q, k, v, how, sink)
        ctx.set_materialize_grads(False)
        return (out, lse) if wants_lse else out

    @staticmethod
    def backward(ctx: Any, d_out: Any, d_lse: Any = None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            made: tuple[Any, ...] = _once(ctx, d_out, d_lse)
            return made
        return _backward(ctx, d_out, d_lse)


def _like(q: Any, k: Any, v: Any, how: How, sink: Any) -> tuple[Any, ...] | None:
    """What the forward pass knows of the backward pass's key; None if that is more than the gradient of out, for q, k, v."""
    cu_q, cu_k, used, longest_q, longest_k, table, *mask = how
    if sink is not None or used is not None or table is not None:
        return None
    ends = None if cu_q is None or cu_k is None else cu_q.shape
    return (ends, longest_q, longest_k, q.shape, k.shape, v.shape, q.dtype, q.device, *mask)


def _backward(ctx: Any, d_out: Any, d_lse: Any) -> tuple[Any, ...]:
    q, k, v, out, lse, sink = ctx.saved_tensors
    how, key = ctx.how, ctx.like
    if key is not None and d_lse is None and d_out is not None:
        key = (*key, q.stride(), k.stride(), v.stride(), out.stride(), d_out.stride())
        lists = (0, 0) if key[0] is None else (how.cu_seqlens_q.data_ptr(), how.cu_seqlens_k.data_ptr())
        given = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), d_out.data_ptr())
        made = again(key, given, (lse.data_ptr(),), lists)
        if made is not None:
            return (*made, None, None, None)
    else:
        key = None
    d_out = torch.zeros_like(out) if d_out is None else d_out
    dq, dk, dv, d_sink, _ = gradients(d_out, q, k, v, out, lse, how, d_lse=d_lse, sink=sink, key=key)
    return dq, dk, dv, None, d_sink, None


_once = once_differentiable(_backward)
"""With create_graph: a second derivative is an error."""

# Nor is there anything to choose between backward and vjp.
_Attention._backward_cls.apply = _Attention.backward  # noqa: SLF001

# What Function.apply does before it comes there is for arguments that is_plain has ruled out.
differentiable = super(torch.autograd.Function, _Attention).apply
"""Of q, k, v, how, sink and whether lse is wanted: out with a gradient, or out and lse."""


def _register() -> tuple[Any, Any]:
    """Register flashdepot::attention and its backward pass for torch.compile, export and subclasses; None before torch 2.4."""
    if not hasattr(torch.library, "register_autograd"):
        return None, None
    how = (
        "Tensor? sink, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_k, SymInt? max_seqlen_q, "
        "SymInt? max_seqlen_k, Tensor? page_table, float scale, bool causal, int left, int right, float softcap, "
        "bool deterministic, int flags"
    )

    def forward(q: Any, k: Any, v: Any, sink: Any, *how: Any) -> tuple[Any, Any]:
        return attend(q, k, v, How(*how), sink)

    def backward(d_out: Any, d_lse: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, sink: Any, *how: Any) -> Any:
        *made, d_sink, _ = gradients(d_out, q, k, v, out, lse, How(*how), d_lse=d_lse, sink=sink)
        return (*made, q.new_empty(0) if d_sink is None else d_sink)

    def forward_shapes(q: Any, _: Any, v: Any, *__: Any) -> tuple[Any, Any]:
        rows = q.shape[:-1]
        lse = (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])  # noqa: PLR2004
        return q.new_empty((*rows, v.shape[-1])), q.new_empty(lse, dtype=torch.float32)

    def backward_shapes(*tensors: Any) -> Any:
        _, _, q, k, v, _, _, sink, *_ = tensors
        made = (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v))
        return (*made, q.new_empty(0) if sink is None else torch.empty_like(sink))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
        q, k, v, sink, *how = inputs
        ctx.save_for_backward(q, k, v, *output, sink, *how[:3], how[5])
        ctx.numbers = (*how[3:5], *how[6:])
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, d_out: Any, d_lse: Any) -> tuple[Any, ...]:
        q, k, v, out, lse, sink, *tensors = ctx.saved_tensors
        how = (*tensors[:3], *ctx.numbers[:2], tensors[3], *ctx.numbers[2:])
        d_out = torch.zeros_like(out) if d_out is None else d_out
        *made, d_sink = torch.ops.flashdepot.attention_backward(d_out, d_lse, q, k, v, out, lse, sink, *how)
        return (*made, None if sink is None else d_sink, *(None for _ in how))

    name, back = "flashdepot::attention", "flashdepot::attention_backward"
    torch.library.define(name, f"(Tensor q, Tensor k, Tensor v, {how}) -> (Tensor, Tensor)")
    inputs = "Tensor d_out, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse"
    torch.library.define(back, f"({inputs}, {how}) -> (Tensor, Tensor, Tensor, Tensor)")
    for operator, function, shapes in ((name, forward, forward_shapes), (back, backward, backward_shapes)):
        torch.library.impl(operator, "CUDA", function)
        torch.library.register_fake(operator, shapes)
    torch.library.register_autograd(name, differentiate, setup_context=keep)
    return torch.ops.flashdepot.attention, torch.ops.flashdepot.attention_backward


OPERATOR, BACKWARD_OPERATOR = _register()
"""The same for torch's dispatcher: what compiles, exports or records a call sees it, and knows the shapes it makes."""
