"""What torch's dispatcher would do with a call: nothing with an ordinary one, and refuse tensors on the CPU."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

__all__ = ["CAN_ASK", "OPERATORS", "is_compiling", "is_plain", "register"]

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


OPERATORS = (
    "_flash_attn_forward",
    "_flash_attn_varlen_forward",
    "_flash_attn_backward",
    "_flash_attn_varlen_backward",
)


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Raise the error of a call with tensors on the CPU."""
    found = "" if torch.cuda.is_available() else f" torch {torch.__version__} finds no CUDA GPU here."
    raise RuntimeError(f"FlashAttention runs on CUDA tensors, and these are on the CPU.{found}")


def register() -> Any:
    """Register it for the operators that upstream's package defines after this one is imported, for CUDA only.

    :return: the registration, which lasts as long as this object; ``None`` for a torch before 2.4, where upstream
        defines no operators and its functions come here directly.
    """
    if not hasattr(torch.library, "custom_op"):
        return None
    library = torch.library.Library("flash_attn", "IMPL")
    for name in OPERATORS:
        library.impl(name, refuse, "CPU")
    return library
