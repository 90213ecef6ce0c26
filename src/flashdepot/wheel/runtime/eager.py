"""Upstream's functions without torch's dispatcher, for calls in which the dispatcher has nothing to do.

A call of ``flash_attn_func`` goes through ``autograd.Function`` and a custom operator before it comes here: most of its
host time. The wheel adds one line to the end of upstream's ``flash_attn_interface.py``, which calls :func:`shorten`. From
then on a call in eager mode, with plain tensors, that nothing watches or transforms, skips the custom operator, and
``autograd.Function`` too if it needs no gradient; one with a gradient has a shorter ``autograd.Function``. Every other call
goes upstream's way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .attention import How, differentiable
from .dispatch import CAN_ASK, OPERATORS, is_compiling, is_plain
from .forward import attend_dense, attend_in_one, attend_packed, fwd
from .tensors import NotContiguousError


def shorten(interface: dict[str, Any]) -> None:
    """Let the functions of upstream's ``flash_attn_interface`` take the short way where they can.

    What this version of upstream does not have, or has with other arguments, stays as it is.

    :param interface: its globals.
    """
    if not CAN_ASK or getattr(interface.get("flash_attn_gpu"), "fwd", None) is not fwd:
        return
    for name in OPERATORS:
        body, whole = getattr(interface.get(name), "_init_fn", None), interface.get(f"_wrapped{name}")
        if body is not None and whole is not None:
            interface[f"_wrapped{name}"] = _directly(body, whole)
    for name, (attend, arguments) in _FUNCTIONS.items():
        function = interface.get(name)
        if function is not None and list(inspect.signature(function.forward).parameters) == ["ctx", *arguments.split()]:
            function.apply = staticmethod(_shorter(attend, function.apply))


def _directly(body: Callable[..., Any], whole: Callable[..., Any]) -> Callable[..., Any]:
    """``whole``, a custom operator, or its ``body`` where that is the same."""

    def call(*arguments: Any, **more: Any) -> Any:
        # First, and here: for torch.compile it is constant, and the rest is not read.
        if not is_compiling() and not torch.is_grad_enabled() and is_plain((*arguments, *more.values())):
            return body(*arguments, **more)
        return whole(*arguments, **more)

    return call


def _shorter(attend: Callable[..., Any], apply: Callable[..., Any]) -> Callable[..., Any]:
    """``apply`` of an ``autograd.Function``, or ``attend``, which may decline by ``None``."""

    def call(*arguments: Any) -> Any:
        if not is_compiling() and is_plain(arguments):
            try:
                out = attend(*arguments)
            except NotContiguousError:
                out = None
            if out is not None:
                return out
        return apply(*arguments)

    return call


def _dense(
    q: Any, k: Any, v: Any, dropout: float, scale: Any, causal: bool, window: Any, softcap: float, *others: Any
) -> Any:
    alibi_slopes, deterministic, return_softmax, _ = others
    dim = q.shape[-1]
    if dropout or return_softmax or alibi_slopes is not None or dim % 8 or v.shape[-1] != dim:
        return None
    scale = dim**-0.5 if scale is None else scale
    left, right = window
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        how = How(None, None, None, None, None, None, scale, causal, left, right, softcap, deterministic)
        return differentiable(q, k, v, how, None, False)
    return attend_dense(q, k, v, None, None, (scale, causal, left, right, softcap))[0]


def _dense_kv(q: Any, kv: Any, *others: Any) -> Any:
    return None if _wants_gradient(q, kv) else _dense(q, *kv.unbind(2), *others)


def _dense_qkv(qkv: Any, *others: Any) -> Any:
    if _wants_gradient(qkv):
        return None
    dropout, scale, causal, (left, right), softcap, alibi_slopes, _, return_softmax, _ = others
    if not dropout and not return_softmax and alibi_slopes is None:
        scale = qkv.shape[-1] ** -0.5 if scale is None else scale
        out = attend_in_one(qkv, (scale, causal, left, right, softcap))
        if out is not None:
            return out
    return _dense(*qkv.unbind(2), *others)


def _packed(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest_q: int, longest_k: int, dropout: float, *others: Any
) -> Any:
    scale, causal, window, softcap, alibi_slopes, deterministic, return_softmax, block_table, _ = others
    dim = q.shape[-1]
    if dropout or return_softmax or alibi_slopes is not None or dim % 8 or v.shape[-1] != dim:
        return None
    scale = dim**-0.5 if scale is None else scale
    left, right = window
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        if block_table is not None:
            return None
        lengths = (cu_q, cu_k, None, longest_q, longest_k, None)
        how = How(*lengths, scale, causal, left, right, softcap, deterministic)
        return differentiable(q, k, v, how, None, False)
    keys = (cu_q, cu_k, None, None, block_table, None, longest_q, longest_k)
    return attend_packed(q, k, v, None, keys, (scale, causal, left, right, softcap))[0]


def _packed_kv(q: Any, kv: Any, *others: Any) -> Any:
    return None if _wants_gradient(q, kv) else _packed(q, *kv.unbind(1), *others[:-1], None, others[-1])


def _packed_qkv(qkv: Any, cu: Any, longest: int, *others: Any) -> Any:
    if _wants_gradient(qkv):
        return None
    return _packed(*qkv.unbind(1), cu, cu, longest, longest, *others[:-1], None, others[-1])


def _wants_gradient(*tensors: Any) -> bool:
    """Upstream computes the gradient of a packed tensor in one piece, so it does that itself."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


_HOW = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_softmax"
_LENGTHS = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
_FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "FlashAttnFunc": (_dense, f"q k v {_HOW} is_grad_enabled"),
    "FlashAttnKVPackedFunc": (_dense_kv, f"q kv {_HOW} is_grad_enabled"),
    "FlashAttnQKVPackedFunc": (_dense_qkv, f"qkv {_HOW} is_grad_enabled"),
    "FlashAttnVarlenFunc": (_packed, f"q k v {_LENGTHS} {_HOW} block_table is_grad_enabled"),
    "FlashAttnVarlenKVPackedFunc": (_packed_kv, f"q kv {_LENGTHS} {_HOW} is_grad_enabled"),
    "FlashAttnVarlenQKVPackedFunc": (_packed_qkv, f"qkv cu_seqlens max_seqlen {_HOW} is_grad_enabled"),
}
"""What does the same as each ``autograd.Function`` of upstream, and the arguments that it must have."""
