"""FlashAttention for JAX, over the C library in this package: no torch, no compiler.

Typical usage::

    from flashdepot_jax import flash_attn_func

    out = jax.jit(functools.partial(flash_attn_func, causal=True))(q, k, v)

Arrays are float16 or bfloat16. Under ``jit`` over several devices a call is split over batch and heads; ``vmap`` adds to
the batch. Gradients are exact, of q, k and v. The computation runs on NVIDIA GPUs.
"""

from .attention import flash_attn_func, flash_attn_varlen_func

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]
