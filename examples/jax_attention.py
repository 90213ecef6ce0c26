"""Attention as a JAX operation over the C ABI. Usage: python jax_attention.py LIBRARY_FOLDER (needs g++)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp


def register(library: Path) -> None:
    """Compile the handler against the library and tell JAX about it."""
    source = Path(__file__).with_name("jax_attention.cc")
    built = Path(tempfile.mkdtemp()) / "handler.so"
    includes = [f"-I{library}/include", f"-I{jax.ffi.include_dir()}"]
    libraries = [f"-L{library}/lib/shared", "-lflashattention", f"-Wl,-rpath,{library}/lib/shared"]
    subprocess.run(
        ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", *includes, str(source), "-o", str(built), *libraries],
        check=True,
    )
    handler = ctypes.CDLL(str(built)).flash_attention_forward
    jax.ffi.register_ffi_target("flash_attention_forward", jax.ffi.pycapsule(handler), platform="CUDA")


def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """Softmax attention of bf16 arrays of shape (batch, length, heads, dim)."""
    batch, length, heads, _ = q.shape
    lse = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    call = jax.ffi.ffi_call("flash_attention_forward", (jax.ShapeDtypeStruct(q.shape, q.dtype), lse))
    return call(q, k, v, causal=causal)[0]


def reference(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """The same in float32 at the highest precision."""
    q, k, v = (a.astype(jnp.float32) for a in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") / q.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v, precision="highest")


def main() -> int:
    """Compare with the reference under jit, then time a larger problem."""
    register(Path(sys.argv[1]).resolve())
    run = jax.jit(attention, static_argnames="causal")
    keys = jax.random.split(jax.random.key(0), 3)

    def inputs(*shape: int) -> list[jax.Array]:
        return [jax.random.normal(key, shape, dtype=jnp.bfloat16) for key in keys]

    worst = 0.0
    for causal in (False, True):
        q, k, v = inputs(2, 300, 4, 128)
        difference = run(q, k, v, causal=causal).astype(jnp.float32) - reference(q, k, v, causal=causal)
        worst = max(worst, float(jnp.abs(difference).max()))
    q, k, v = inputs(4, 4096, 16, 128)
    run(q, k, v, causal=False).block_until_ready()
    begun = time.perf_counter()
    for _ in range(20):
        out = run(q, k, v, causal=False)
    out.block_until_ready()
    seconds = (time.perf_counter() - begun) / 20
    print(f"largest error {worst:.1e}; {4 * 4 * 16 * 4096**2 * 128 / seconds / 1e12:.0f} TFLOP/s")
    return 0 if worst < 4e-2 else 1


if __name__ == "__main__":
    sys.exit(main())
