"""Attention in the words that FlashAttention-3 and -4 share, by any family that serves the call.

A call is dense, packed on either side, or over a cache; :func:`attend` finds out which of the C library's three kinds says
the same. Values may have another head dim than keys: the shorter is filled up with zeros, which changes nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .backward import bwd, varlen_bwd
from .dispatch import CAN_ASK, is_compiling, is_plain
from .forward import attend_dense, attend_packed
from .kvcache import fwd_kvcache


class How(NamedTuple):
    """What is the same in the forward and the backward pass. A window's end below 0 is open."""

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


def how_of(
    q: Any,
    scale: float | None,
    causal: bool,
    window: tuple[int | None, int | None],
    softcap: float,
    lengths: tuple[Any, ...] = (None,) * 6,
    *,
    deterministic: bool = False,
) -> How:
    """Put a call's arguments in order: ``lengths`` from cu_seqlens_q to page_table, None or -1 for an open window's end."""
    left, right = window
    left, right = -1 if left is None else int(left), -1 if right is None else int(right)
    mask = (q.shape[-1] ** -0.5 if scale is None else scale, causal, left, right, softcap, deterministic)
    return How(*(*lengths, *mask))


def refuse(what: str, why: str) -> RuntimeError:
    """Make the error of what this library does not do."""
    return RuntimeError(f"{what}: {why} (this flash-attn is flashdepot's, whose kernels are compiled ahead of time)")


def attention(q: Any, k: Any, v: Any, how: How) -> tuple[Any, Any]:
    """Return out, and the lse of each row, +inf where a row sees no key; differentiable in q, k and v."""
    if is_compiling() or not (CAN_ASK and is_plain((q, k, v))):
        if _OPERATOR is None:
            raise refuse("torch.compile and tensor subclasses", "they need torch 2.4 or newer")
        out, lse = _OPERATOR(q, k, v, *how)
        return out, lse
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return differentiable(q, k, v, how)
    return attend(q, k, v, how)


def differentiable(q: Any, k: Any, v: Any, how: How) -> tuple[Any, Any]:
    """Return out and lse of a plain call, out with a gradient."""
    result: tuple[Any, Any] = _Attention.apply(q, k, v, how)
    return result


def with_minus_infinity(lse: Any, how: How) -> Any:
    """Lse as FlashAttention-3 and -4 return it: -inf for a row that sees no key."""
    dense = how.cu_seqlens_q is how.cu_seqlens_k is how.seqused_k is how.page_table is None
    if dense and not how.causal and how.left < 0 and how.right < 0:
        return lse
    return lse.masked_fill(lse == math.inf, -math.inf)


def attend(q: Any, k: Any, v: Any, how: How, out: Any = None) -> tuple[Any, Any]:
    """Return out, written where it is given, and lse; nothing is recorded for a backward pass."""
    q, k, v, wide = _contiguous(q), _contiguous(k), _contiguous(v), v.shape[-1]
    q, k, v = _equally_wide(q, k, v)
    into = out if out is not None and out.shape == q.shape else None
    mask: tuple[Any, ...] = (how.scale, how.causal, how.left, how.right, how.softcap)
    if how.cu_seqlens_q is not None or how.cu_seqlens_k is not None:
        shape = q.shape
        q, k, v, keys = _packed(q, k, v, how)
        given = None if into is None else into.reshape(q.shape)
        made, lse = attend_packed(q, k, v, given, *keys, *mask)
        made = made.reshape(shape)
        if len(shape) == 4:  # noqa: PLR2004
            lse = lse.view(lse.shape[0], shape[0], shape[1]).transpose(0, 1).contiguous()
    elif how.page_table is not None or how.seqused_k is not None:
        nothing_new = (None, None, how.seqused_k, None, None, None, None, how.page_table, None)
        arguments: tuple[Any, ...] = (q, k, v, *nothing_new, into, *mask, False, 0)
        made, lse = fwd_kvcache(*arguments)
    else:
        made, lse = attend_dense(q, k, v, into, None, *mask)
    if made.shape[-1] != wide:
        made = made[..., :wide].contiguous()
    if out is not None and made.data_ptr() != out.data_ptr():
        out.copy_(made)
        made = out
    return made, lse


def gradients(
    d_out: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, how: How, into: tuple[Any, Any, Any] = (None, None, None)
) -> tuple[Any, Any, Any, Any]:
    """Return dq, dk and dv, written where they are given, and softmax_d."""
    if how.seqused_k is not None or how.page_table is not None:
        raise refuse("a backward pass with seqused_k or page_table", "no kernel has one; pass cu_seqlens_k instead")
    if (how.cu_seqlens_q is None) != (how.cu_seqlens_k is None):
        raise refuse("a backward pass with cu_seqlens of one side", "pass cu_seqlens_q and cu_seqlens_k")
    d_out, q, k, v, out = (_contiguous(tensor) for tensor in (d_out, q, k, v, out))
    wide, narrow = (q.shape, k.shape, v.shape), v.shape[-1] != q.shape[-1]
    if narrow:
        q, k, v = _equally_wide(q, k, v)
        out, d_out = (pad(tensor, (0, q.shape[-1] - tensor.shape[-1])) for tensor in (out, d_out))
    given: tuple[Any, ...] = (None, None, None) if narrow else into
    mask: tuple[Any, ...] = (how.causal, how.left, how.right, how.softcap, how.deterministic, None, None)
    if how.cu_seqlens_q is None:
        arguments: tuple[Any, ...] = (d_out, q, k, v, out, lse, *given, None, 0.0, how.scale, *mask)
        *made, softmax_d = bwd(*arguments)
    else:
        longest = (_longest(how.max_seqlen_q, q), _longest(how.max_seqlen_k, k))
        lengths = (how.cu_seqlens_q, how.cu_seqlens_k, None, *longest)
        arguments = (d_out, q, k, v, out, lse, *given, *lengths, 0.0, how.scale, False, *mask)
        *made, softmax_d = varlen_bwd(*arguments)
    if narrow:
        made = [tensor[..., : shape[-1]].contiguous() for tensor, shape in zip(made, wide)]
        for tensor, place in zip(made, into):
            if place is not None:
                place.copy_(tensor)
    return (*made, softmax_d)


def _packed(q: Any, k: Any, v: Any, how: How) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """A call with sequences on either side as one with sequences on both, and what comes after out in attend_packed."""
    cu_q, cu_k, used, table = how.cu_seqlens_q, how.cu_seqlens_k, how.seqused_k, how.page_table
    longest_q, longest_k = how.max_seqlen_q, how.max_seqlen_k
    if cu_q is None:
        longest_q = q.shape[1]
        cu_q, q = _starts(q), q.flatten(0, 1)
    if table is not None:
        longest_k = longest_k or table.shape[1] * k.shape[1]
        if cu_k is None:
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


def _equally_wide(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    missing = q.shape[-1] - v.shape[-1]
    if missing > 0:
        v = pad(v, (0, missing))
    elif missing < 0:
        q, k = pad(q, (0, -missing)), pad(k, (0, -missing))
    return q, k, v


class _Attention(torch.autograd.Function):  # type: ignore[misc]  # torch is Any where types are checked
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, how: How) -> tuple[Any, Any]:
        out, lse = attend(q, k, v, how)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.how = how
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d_out: Any, _: Any) -> tuple[Any, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        return (*gradients(d_out, q, k, v, out, lse, ctx.how)[:3], None)


def _register() -> Any:
    """Register flashdepot::attention for torch.compile, export and subclasses; None for a torch before 2.4."""
    if not hasattr(torch.library, "register_autograd"):
        return None
    optional = (
        "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_k, SymInt? max_seqlen_q, SymInt? max_seqlen_k, "
    )
    how = f"{optional}Tensor? page_table, float scale, bool causal, int left, int right, float softcap, bool deterministic"

    def forward(q: Any, k: Any, v: Any, *how: Any) -> tuple[Any, Any]:
        return attend(q, k, v, How(*how))

    def backward(d_out: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *how: Any) -> tuple[Any, Any, Any]:
        dq, dk, dv, _ = gradients(d_out, q, k, v, out, lse, How(*how))
        return dq, dk, dv

    def forward_shapes(q: Any, _: Any, v: Any, *__: Any) -> tuple[Any, Any]:
        rows = q.shape[:-1]
        lse = (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])  # noqa: PLR2004
        return q.new_empty((*rows, v.shape[-1])), q.new_empty(lse, dtype=torch.float32)

    def backward_shapes(_: Any, q: Any, k: Any, v: Any, *__: Any) -> tuple[Any, Any, Any]:
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
        q, k, v, *how = inputs
        tensors = how[:3] + how[5:6]
        ctx.save_for_backward(q, k, v, *output, *tensors)
        ctx.numbers = (*how[3:5], *how[6:])

    def differentiate(ctx: Any, d_out: Any, _: Any) -> tuple[Any, ...]:
        q, k, v, out, lse, *tensors = ctx.saved_tensors
        how = (*tensors[:3], *ctx.numbers[:2], tensors[3], *ctx.numbers[2:])
        made = torch.ops.flashdepot.attention_backward(d_out, q, k, v, out, lse, *how)
        return (*made, *(None for _ in how))

    name, back = "flashdepot::attention", "flashdepot::attention_backward"
    torch.library.define(name, f"(Tensor q, Tensor k, Tensor v, {how}) -> (Tensor, Tensor)")
    inputs = "Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse"
    torch.library.define(back, f"({inputs}, {how}) -> (Tensor, Tensor, Tensor)")
    for operator, function, shapes in ((name, forward, forward_shapes), (back, backward, backward_shapes)):
        torch.library.impl(operator, "CUDA", function)
        torch.library.register_fake(operator, shapes)
    torch.library.register_autograd(name, differentiate, setup_context=keep)
    return torch.ops.flashdepot.attention


_OPERATOR = _register()
