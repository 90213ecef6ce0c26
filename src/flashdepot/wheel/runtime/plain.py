"""Whether a call is an ordinary one, which torch's dispatcher has nothing to do for."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["CAN_ASK", "is_compiling", "is_plain"]

_PLAIN = frozenset({torch.Tensor, float, int, bool, tuple, type(None)})
"""Exact types: a subclass, such as a FakeTensor, a DTensor or a parameter, has its own idea of a call."""

try:
    from torch._C import _get_tracing_state, _len_torch_dispatch_stack, _len_torch_function_stack
    from torch._C._functorch import maybe_current_level
    from torch.autograd import forward_ad
    from torch.compiler import is_compiling

    CAN_ASK = forward_ad._current_level < 0  # noqa: SLF001
except (ImportError, AttributeError):  # a torch that does not say what happens around a call: upstream's way is right
    CAN_ASK = False
    is_compiling = bool


def is_plain(arguments: tuple[Any, ...]) -> bool:
    """Whether a call, its first argument a tensor, is an ordinary one: nothing traces, watches or transforms it."""
    return (
        _PLAIN.issuperset(map(type, arguments))
        and arguments[0].is_cuda
        and not _len_torch_dispatch_stack()
        and not _len_torch_function_stack()
        and maybe_current_level() is None
        and forward_ad._current_level < 0  # noqa: SLF001
        and _get_tracing_state() is None
    )
