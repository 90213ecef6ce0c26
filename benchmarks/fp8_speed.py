"""FP8 compared with cuDNN's, and absorbed MLA, forward, on this machine's GPU.

Usage: python benchmarks/fp8_speed.py ours | mla     with torch and a wheel of --families all,fa3 --names flash-attn-3
       python benchmarks/fp8_speed.py cudnn          with JAX for CUDA

Prints milliseconds, the median of rounds of several calls, and TFLOP/s, or for MLA's decoding also the bytes of its cache a
second, next to the same by torch's matrix products, and how fast the memory copies. cuDNN has one factor for a tensor and
writes o in e4m3; ours has factors of each sequence and head and writes bf16.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

SHAPES = [(dim, 2048 // dim, batch, 16384 // batch) for dim in (64, 128, 256) for batch in (16, 4, 1)]
ROUNDS = 7


def report(what: str, dim: int, heads: int, batch: int, length: int, causal: bool, ms: float) -> None:
    flop = 4 * batch * heads * length * length * dim * (0.5 if causal else 1)
    print(
        f"{what} d{dim} b{batch} s{length} h{heads} causal {causal}: {ms:.4f} ms {flop / ms / 1e9:.0f} TFLOP/s",
        flush=True,
    )


def of_torch(call: Callable[[], object]) -> float:
    """Milliseconds of a call in a CUDA graph of several."""
    import torch  # noqa: PLC0415  (cuDNN's part has JAX)

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    calls = max(2, min(40, math.ceil(6 / begin.elapsed_time(end))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    graph.replay()
    times = []
    for _ in range(ROUNDS):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def ours() -> None:
    import torch  # noqa: PLC0415
    from flash_attn_interface import flash_attn_func  # noqa: PLC0415

    print(torch.cuda.get_device_name())
    for dim, heads, batch, length in SHAPES:
        for causal in (False, True):
            q, k, v = (torch.randn(batch, length, heads, dim, device="cuda").to(torch.float8_e4m3fn) for _ in range(3))
            one = torch.ones(batch, heads, device="cuda")
            factors = {"q_descale": one, "k_descale": one, "v_descale": one}

            def call(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal, factors: Any = factors) -> object:
                return flash_attn_func(q, k, v, causal=causal, **factors)

            report("fa3 e4m3", dim, heads, batch, length, causal, of_torch(call))
            halves = [t.to(torch.bfloat16) for t in (q, k, v)]

            def half(halves: Any = halves, causal: bool = causal) -> object:
                return flash_attn_func(*halves, causal=causal)

            report("bf16", dim, heads, batch, length, causal, of_torch(half))


def copied() -> float:
    """The memory's speed: GB/s, read and written, of a copy of 1 GiB."""
    import torch  # noqa: PLC0415

    source, target = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
    return 2 * len(source) / of_torch(lambda: target.copy_(source)) / 1e6


def mla() -> None:
    import torch  # noqa: PLC0415
    from flash_attn_interface import flash_attn_with_kvcache  # noqa: PLC0415

    print(torch.cuda.get_device_name())
    print(f"copy: {copied():.0f} GB/s read and written", flush=True)
    heads = 128
    for batch, rows, length, page in (
        (1, 1, 8192, 64), (16, 1, 4096, 64), (64, 1, 4096, 64), (128, 1, 4096, 64), (128, 1, 8192, 64), (16, 1, 4096, 0), (128, 1, 4096, 0),
        (128, 2, 4096, 64), (128, 1, 4096, 1), (1, 4096, 4096, 0),
    ):  # fmt: skip
        q = torch.randn(batch, rows, heads, 64, device="cuda", dtype=torch.bfloat16)
        qv = torch.randn(batch, rows, heads, 512, device="cuda", dtype=torch.bfloat16)
        pool = (batch * length // page, page) if page else (batch, length)
        k = torch.randn(*pool, 1, 64, device="cuda", dtype=torch.bfloat16)
        v = torch.randn(*pool, 1, 512, device="cuda", dtype=torch.bfloat16)
        table = torch.randperm(pool[0], device="cuda").view(batch, -1).to(torch.int32) if page else None
        used = torch.full((batch,), length, device="cuda", dtype=torch.int32)

        def call(q: Any = q, k: Any = k, v: Any = v, qv: Any = qv, used: Any = used, table: Any = table) -> Any:
            return flash_attn_with_kvcache(q, k, v, qv=qv, cache_seqlens=used, page_table=table, causal=True)

        try:
            ms = of_torch(call)
        except RuntimeError as error:
            print(f"mla b{batch} rows {rows} keys {length} page {page}: {error}"[:300], flush=True)
            continue
        seen = 0.5 if rows == length else 1
        flop = 2 * batch * heads * rows * length * (64 + 512 + 512) * seen
        cache = batch * length * 576 * 2
        print(
            f"mla b{batch} rows {rows} keys {length} page {page}: {ms:.4f} ms {flop / ms / 1e9:.0f} TFLOP/s "
            f"{cache / ms / 1e6:.0f} GB/s of cache",
            flush=True,
        )
        if page or rows not in (1, length):
            continue

        queries, keys = torch.cat((q, qv), -1), torch.cat((k, v), -1)[:, :, 0]

        def plain(queries: Any = queries, keys: Any = keys, causal: bool = rows > 1) -> Any:
            return plainly(queries, keys, causal=causal)

        expected = plain().float()
        worst = (call().float() - expected).abs().max() / expected.abs().max()
        ms = of_torch(plain)
        print(
            f"torch b{batch} rows {rows} keys {length}: {ms:.4f} ms; ours off by {worst:.5f} of its largest", flush=True
        )


def plainly(queries: Any, keys: Any, *, causal: bool) -> Any:
    """The same by torch's matrix products over contiguous keys of 64 and 512 numbers, which all heads share."""
    import torch  # noqa: PLC0415

    batch, rows, heads, dim = queries.shape
    scores = queries.reshape(batch, rows * heads, dim) @ keys.transpose(1, 2)
    scores = scores.view(batch, rows, heads, -1).float() * dim**-0.5
    if causal:
        hidden = torch.ones(rows, scores.shape[-1], dtype=torch.bool, device=queries.device).triu(1)
        scores = scores.masked_fill(hidden[:, None], float("-inf"))
    weights = scores.softmax(-1).to(keys.dtype).view(batch, rows * heads, -1)
    return (weights @ keys[:, :, dim - 512 :]).view(batch, rows, heads, -1)


def cudnn() -> None:
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    from jax._src.cudnn import fused_attention_stablehlo as cudnn_of_jax  # noqa: PLC0415

    print(jax.devices(), jax.__version__)
    params = {name: jnp.ones((1, 1, 1, 1), jnp.float32) for name in cudnn_of_jax.fp8_params_keys}
    for dim, heads, batch, length in SHAPES:
        for causal in (False, True):
            mask = cudnn_of_jax.MaskType.CAUSAL if causal else cudnn_of_jax.MaskType.NO_MASK
            keys = jax.random.split(jax.random.key(0), 3)
            shape = (batch, length, heads, dim)
            qkv = [jax.random.normal(key, shape, jnp.bfloat16).astype(jnp.float8_e4m3fn) for key in keys]

            def attention(q: Any, k: Any, v: Any, mask: Any = mask, dim: int = dim) -> Any:
                return cudnn_of_jax.dot_product_attention(
                    q, k, v, fp8_params=params, scale=dim**-0.5, mask_type=mask, use_fp8=True
                )[0]

            try:
                call = jax.jit(attention)
                call(*qkv).block_until_ready()
            except Exception as error:  # noqa: BLE001  (whatever cuDNN does not take)
                print(
                    f"cudnn d{dim} b{batch} s{length} causal {causal}: {type(error).__name__} {error}"[:200], flush=True
                )
                continue
            times = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                for _ in range(40):
                    out = call(*qkv)
                out.block_until_ready()
                times.append((time.perf_counter() - began) / 40 * 1e3)
            report("cudnn e4m3", dim, heads, batch, length, causal, statistics.median(times))


if __name__ == "__main__":
    {"ours": ours, "mla": mla, "cudnn": cudnn}[sys.argv[1]]()
