"""One small attention problem, forward and backward, for a run under compute-sanitizer to compare with ours.

Usage: compute-sanitizer --tool TOOL python benchmarks/sanitizer_beside.py upstream --source FOLDER
       ... ours [FAMILY] | cudnn

upstream is flash-attn-4's own interface, which compiles for itself: FOLDER is its source distribution, unpacked, and
CuTe DSL is on PYTHONPATH. Run it once without a tool and with FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 and a
FLASH_ATTENTION_CUTE_DSL_CACHE_DIR, so that the tool does not see the compiler. What a tool says of this and of our library
alike is not of our build.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from jit_beside import as_package, upstream


def function_of(options: argparse.Namespace, folder: str) -> Any:
    if options.who == "cudnn":
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
        from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

        def cudnn(*qkv: torch.Tensor) -> torch.Tensor:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                heads_first = (t.transpose(1, 2) for t in qkv)
                return scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)

        return cudnn
    if options.who == "upstream":
        as_package(Path(options.source), Path(folder) / "packages")
        return upstream(f"{folder}/packages")
    os.environ["FLASH_ATTENTION_FAMILY"] = options.family
    from flash_attn import flash_attn_func  # noqa: PLC0415

    return lambda q, k, v: flash_attn_func(q, k, v, causal=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("upstream", "ours", "cudnn"))
    parser.add_argument("family", nargs="?", default="fa4")
    parser.add_argument("--source")
    parser.add_argument("--head-dim", type=int, default=96)
    options = parser.parse_args()
    host = torch.Generator().manual_seed(1)

    def normal(length: int) -> torch.Tensor:
        return torch.randn(2, length, 2, options.head_dim, generator=host).bfloat16().cuda()

    q, k, v, d_o = (normal(256) for _ in range(4))
    with tempfile.TemporaryDirectory() as folder:
        function = function_of(options, folder)
        for tensor in (q, k, v):
            tensor.requires_grad_()
        out = function(q, k, v)
        gradients = torch.autograd.grad(out, (q, k, v), d_o)
        torch.cuda.synchronize()
    print(options.who, [round(float(t.float().norm()), 3) for t in (out, *gradients)])


if __name__ == "__main__":
    main()
