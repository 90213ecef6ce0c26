"""Torch, for memory, streams and references; loaded without its warnings, which pytest makes errors."""

from __future__ import annotations

import warnings
from types import ModuleType


def import_torch() -> ModuleType | str:
    """Torch with a GPU, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch  # noqa: PLC0415
    except ImportError:
        return "torch is not installed, which provides memory, streams and the reference"
    if not torch.cuda.is_available():
        return "this machine has no NVIDIA GPU that torch can use"
    return torch


torch = import_torch()
