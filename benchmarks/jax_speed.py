"""The speed of flashdepot_jax compared with jax.nn.dot_product_attention by cuDNN, in one process. Needs jax for CUDA and a GPU.

Usage: python benchmarks/jax_speed.py OUT.csv
"""

from __future__ import annotations

import csv
import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
from flashdepot_jax import flash_attn_func

HEAD_DIM = 128
PROBLEMS = [  # batch, length, heads, key heads, causal
    (8, 1024, 16, 16, True),
    (4, 4096, 16, 16, True),
    (4, 4096, 16, 16, False),
    (2, 8192, 32, 8, True),
    (1, 16384, 16, 16, True),
]
CALLS, ROUNDS = 20, 5


def medians(functions: dict[str, Any], arrays: list[Any]) -> dict[str, float]:
    """Milliseconds a call, the median of the rounds, in which the functions take turns."""
    for function in functions.values():
        jax.block_until_ready(function(*arrays))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            begun = time.perf_counter()
            for _ in range(CALLS):
                found = function(*arrays)
            jax.block_until_ready(found)
            times[name].append((time.perf_counter() - begun) / CALLS * 1e3)
    return {name: sorted(found)[ROUNDS // 2] for name, found in times.items()}


def difference(ours: Any, theirs: Any) -> float:
    """The largest, as a part of the largest value."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    pairs = [(a.astype(jnp.float32), b.astype(jnp.float32)) for a, b in pairs]
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in pairs)


def gradients(attention: Any) -> Any:
    """Those of the sum of the output."""
    return jax.jit(jax.grad(lambda *arrays: attention(*arrays).astype(jnp.float32).sum(), argnums=(0, 1, 2)))


def main() -> None:
    """Write a row for each problem and pass."""
    with Path(sys.argv[1]).open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["batch", "length", "heads", "heads_k", "causal", "pass", "flashdepot_ms", "cudnn_ms", "largest_difference"]
        )
        for batch, length, heads, heads_k, causal in PROBLEMS:
            keys = jax.random.split(jax.random.key(0), 3)
            shapes = [(batch, length, n, HEAD_DIM) for n in (heads, heads_k, heads_k)]
            arrays = [jax.random.normal(key, shape, jnp.bfloat16) for key, shape in zip(keys, shapes, strict=True)]
            ours = functools.partial(flash_attn_func, causal=causal)
            theirs = functools.partial(jax.nn.dot_product_attention, is_causal=causal, implementation="cudnn")
            for name, wrap in (("forward", jax.jit), ("gradients", gradients)):
                both = {"flashdepot": wrap(ours), "cudnn": wrap(theirs)}
                found = medians(both, arrays)
                far = difference(*(function(*arrays) for function in both.values()))
                times = (round(found["flashdepot"], 4), round(found["cudnn"], 4))
                row = (batch, length, heads, heads_k, str(causal).lower(), name, *times, f"{far:.4f}")
                table.writerow(row)
                print(*row, flush=True)


if __name__ == "__main__":
    main()
