"""The first call of `flash_attn.cute` in this process: seconds for the import, the call and the next one, as a line of JSON.

Usage: python benchmarks/first_call.py [backward]     where flash-attn-4, ours or upstream's, is installed and torch sees a GPU

With FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 upstream's keeps what it compiled on a disk for the next process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes

found: dict[str, float | bool] = {}


def timed(name: str, call: Callable[[], Any]) -> Any:
    """Call it and note how long that took, with the GPU's work."""
    started = time.perf_counter()
    made = call()
    torch.cuda.synchronize()
    found[name] = round(time.perf_counter() - started, 5)
    return made


def import_it() -> Any:
    from flash_attn.cute import flash_attn_func  # noqa: PLC0415

    return flash_attn_func


def main() -> None:
    """Measure b 1, 512 rows, 8 heads, head dim 128, bf16, causal."""
    torch.manual_seed(0)
    backward = "backward" in sys.argv
    q, k, v, g = (torch.randn(1, 512, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in range(4))
    tensors = [tensor.requires_grad_(backward) for tensor in (q, k, v)]
    torch.cuda.synchronize()
    function = timed("import", import_it)
    timed("first", lambda: function(*tensors, causal=True))
    out = timed("second", lambda: function(*tensors, causal=True))[0]
    if backward:
        for name in ("first backward", "second backward"):
            timed(name, lambda: torch.autograd.grad(out, tensors, g, retain_graph=True))
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.detach().double().transpose(1, 2) for tensor in tensors), is_causal=True
    ).transpose(1, 2)
    found["from float64"] = round(float((out.detach().double() - exact).norm() / exact.norm()), 5)
    found["compiles"] = "cutlass" in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main()
