"""What tensors on the CPU get: one sentence, where torch's dispatcher would print its table of backends."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

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
    """Register it for the operators that upstream's package defines after this one is imported, for CUDA alone.

    :return: the registration, which lasts as long as this object; ``None`` for a torch before 2.4, where upstream
        defines no operators and its functions come here directly.
    """
    if not hasattr(torch.library, "custom_op"):
        return None
    library = torch.library.Library("flash_attn", "IMPL")
    for name in OPERATORS:
        library.impl(name, refuse, "CPU")
    return library
