"""Host time of a call, next to SDPA's: microseconds, the fastest of some repeats; nothing waits for the GPU.

Usage: python benchmarks/host_time.py [OUT.json]     where the wheel is installed and torch sees a GPU
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from flash_attn import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func, flash_attn_with_kvcache

CALLS, REPEATS = 100, 40
"""As many calls as fit into the queue of a GPU, which then waits for nobody."""

LAYERS = 16
"""Through which a backward pass goes that pays for torch's thread once."""


def microseconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """What each call takes, by turns: a machine whose clock changes does so for all of them."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(REPEATS):
        for name, call in calls.items():
            call()
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], round((time.perf_counter() - started) / CALLS * 1e6, 2))
    return best


def cases(d: int) -> dict[str, Callable[[], object]]:
    def make(*shape: int, grad: bool = False) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.bfloat16, device="cuda", requires_grad=grad)

    b, s, h, hk = 1, 64, 8, 8
    q, k, v = make(b, s, h, d), make(b, s, hk, d), make(b, s, hk, d)
    x = [make(b, s, h, d, grad=True) for _ in range(3)]
    t = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    y = [make(b, h, s, d, grad=True) for _ in range(3)]
    packed = [tensor.flatten(0, 1) for tensor in (q, k, v)]
    z = [make(s, h, d, grad=True) for _ in range(3)]
    cu = torch.tensor([0, s], dtype=torch.int32, device="cuda")
    qkv, one = make(b, s, 3, h, d), make(b, 1, h, d)
    lengths = torch.tensor([s - 1], dtype=torch.int32, device="cuda")
    new = make(b, 1, hk, d)
    out, g = flash_attn_func(*x, causal=True), make(b, s, h, d)
    out_sdpa = F.scaled_dot_product_attention(*y, is_causal=True)
    g_sdpa = g.transpose(1, 2)
    deep, deep_sdpa = x[0], y[0]
    for _ in range(LAYERS):
        deep = flash_attn_func(deep, *x[1:], causal=True)
        deep_sdpa = F.scaled_dot_product_attention(deep_sdpa, *y[1:], is_causal=True)
    made: dict[str, Callable[[], object]] = {
        "SDPA": lambda: F.scaled_dot_product_attention(*t, is_causal=True),
        "flash_attn_func": lambda: flash_attn_func(q, k, v, causal=True),
        "flash_attn_varlen_func": lambda: flash_attn_varlen_func(*packed, cu, cu, s, s, causal=True),
        "flash_attn_qkvpacked_func": lambda: flash_attn_qkvpacked_func(qkv, causal=True),
        "flash_attn_with_kvcache": lambda: flash_attn_with_kvcache(one, k, v, cache_seqlens=lengths, causal=True),
        "flash_attn_with_kvcache, append": lambda: flash_attn_with_kvcache(
            one, k, v, new, new, cache_seqlens=lengths, causal=True
        ),
        "SDPA, gradient": lambda: F.scaled_dot_product_attention(*y, is_causal=True),
        "flash_attn_func, gradient": lambda: flash_attn_func(*x, causal=True),
        "flash_attn_varlen_func, gradient": lambda: flash_attn_varlen_func(*z, cu, cu, s, s, causal=True),
        "SDPA, backward": lambda: torch.autograd.grad(out_sdpa, y, g_sdpa, retain_graph=True),
        "flash_attn_func, backward": lambda: torch.autograd.grad(out, x, g, retain_graph=True),
        f"SDPA, backward of {LAYERS}": lambda: torch.autograd.grad(deep_sdpa, y[0], g_sdpa, retain_graph=True),
        f"flash_attn_func, backward of {LAYERS}": lambda: torch.autograd.grad(deep, x[0], g, retain_graph=True),
    }
    try:
        import flash_attn_interface as fa3  # noqa: PLC0415
        from flash_attn.cute import flash_attn_func as fa4  # noqa: PLC0415
    except ImportError:
        return made
    made["flash_attn_interface.flash_attn_func"] = lambda: fa3.flash_attn_func(q, k, v, causal=True)
    made["flash_attn.cute.flash_attn_func"] = lambda: fa4(q, k, v, causal=True)
    made["flash_attn_interface.flash_attn_func, gradient"] = lambda: fa3.flash_attn_func(*x, causal=True)
    made["flash_attn.cute.flash_attn_func, gradient"] = lambda: fa4(*x, causal=True)
    return made


def main() -> None:
    """Print one line for each figure, and write them as JSON."""
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; microseconds a call")
    found = microseconds(cases(64))
    for name, taken in found.items():
        print(f"{name:<56}{taken:>8}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:  # noqa: PTH123
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
