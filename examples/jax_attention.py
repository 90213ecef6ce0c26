"""Attention and its gradients in JAX. Needs the wheel that `flashdepot wheel --names flashdepot-jax` makes, and a GPU."""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from flashdepot_jax import flash_attn_func


def loss(attention: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A number that depends on all of the output."""
    return (attention(q, k, v).astype(jnp.float32) ** 2).mean()


def milliseconds(function: Any, *arrays: jax.Array) -> float:
    """The time of a call, by the mean of twenty."""
    jax.block_until_ready(function(*arrays))
    begun = time.perf_counter()
    for _ in range(20):
        found = function(*arrays)
    jax.block_until_ready(found)
    return (time.perf_counter() - begun) * 50


def main() -> int:
    """Compare gradients with those of jax.nn.dot_product_attention, then the time."""
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (4, 2048, 16, 128), dtype=jnp.bfloat16) for key in keys)
    ours = functools.partial(flash_attn_func, causal=True)
    theirs = functools.partial(jax.nn.dot_product_attention, is_causal=True)
    gradients = {
        name: jax.jit(jax.grad(functools.partial(loss, attention), argnums=(0, 1, 2)))
        for name, attention in (("flashdepot", ours), ("jax.nn", theirs))
    }
    found, wanted = (gradient(q, k, v) for gradient in gradients.values())
    worst = max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(found, wanted, strict=True))
    times = {name: milliseconds(gradient, q, k, v) for name, gradient in gradients.items()}
    print(f"largest relative difference {worst:.1e}; ms a step: {times}")
    return 0 if worst < 4e-2 else 1


if __name__ == "__main__":
    sys.exit(main())
