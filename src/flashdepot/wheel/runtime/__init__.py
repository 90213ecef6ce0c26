"""FlashAttention-2 for torch, by calls into libflashattention: the functions of upstream's extension of this name.

Same functions, arguments, results and checks as ``flash_attn_2_cuda`` of flash-attn built against torch, but no torch
library is linked: one file serves every torch and every Python.
"""

from .backward import bwd, varlen_bwd
from .dispatch import register
from .forward import fwd, varlen_fwd
from .kvcache import fwd_kvcache

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]

_for_cpu_tensors = register()
