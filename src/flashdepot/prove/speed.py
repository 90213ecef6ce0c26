"""Run inside the environment under test: time flash_attn next to torch's own attention on this machine's GPU.

It imports torch and flash_attn and nothing of flashdepot. Its one argument is a JSON object of options; it prints one
JSON document. Times are medians of CUDA events, rivals in turn.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from flash_attn import flash_attn_func
from torch.nn.attention import SDPBackend, sdpa_kernel

Run = Callable[[], object]

BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": getattr(SDPBackend, "CUDNN_ATTENTION", None),
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}
WARMUPS = 3

GROWN = 0.97
"""Throughput that is this part of the best one has stopped growing: what is left is noise and clocks."""

FAMILIES = {"fa4": 4, "fa2": 2}
"""Families that our library may have, by the numbers of FLASH_ATTENTION_FAMILY."""

LONG_ENOUGH = 20.0
"""Milliseconds that one measurement lasts at least, so that starting its first kernel does not count."""


def flop(batch: int, heads: int, length: int, dim: int, *, causal: bool, backward: bool) -> float:
    """Floating-point operations of the two (forward) or seven (both) matrix products."""
    forward = 4.0 * batch * heads * length * length * dim * (0.5 if causal else 1.0)
    return forward * (3.5 if backward else 1.0)


def measure(run: Run, calls: int) -> float:
    """Milliseconds of one call, over several in a row."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / calls


def milliseconds(runs: dict[str, Run], rounds: int, calls: int) -> dict[str, float]:
    """Median milliseconds of one call of each, taken in turn."""
    enough = {}
    for name, run in runs.items():
        for _ in range(WARMUPS):
            once = measure(run, calls)
        enough[name] = max(calls, math.ceil(LONG_ENOUGH / once))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(measure(run, enough[name]))
    return {name: statistics.median(t) for name, t in times.items()}


def by_family(run: Run) -> dict[str, Run]:
    """``run`` by each family of kernels; nothing where flash_attn has one family for it, or is another wheel than ours."""
    try:
        from flash_attn_2_cuda import library  # noqa: PLC0415
    except ImportError:
        return {}

    def forced(number: int) -> Run:
        def run_by() -> object:
            before, library._family = library._family, number  # noqa: SLF001
            try:
                return run()
            finally:
                library._family = before  # noqa: SLF001

        return run_by

    found = {}
    for name, number in FAMILIES.items():
        try:
            forced(number)()
        except RuntimeError:
            continue
        found[name] = forced(number)
    return found if len(found) > 1 else {}


def contestants(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, *, causal: bool, backward: bool
) -> dict[str, Run]:
    """Every implementation that takes these inputs: ours first, then its families if it has several."""
    inputs = (q, k, v)

    def ours() -> object:
        out = flash_attn_func(*inputs, causal=causal)
        return torch.autograd.grad(out, inputs, g) if backward else out

    turned = tuple(t.detach().transpose(1, 2).requires_grad_(backward) for t in inputs)
    turned_g = g.transpose(1, 2)

    def rival(backend: Any) -> Run:
        def run() -> object:
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal)
            return torch.autograd.grad(out, turned, turned_g) if backward else out

        return run

    found: dict[str, Run] = {"flash_attn": ours, **by_family(ours)}
    for name, backend in BACKENDS.items():
        if backend is None:
            continue
        run = rival(backend)
        try:
            run()
        except RuntimeError:
            continue
        found[name] = run
    return found


def rows(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The grid: about the same number of tokens in each problem, 2048 / head dim heads."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options["dtype"]]
    for backward in options["backward"]:
        for dim in options["head_dims"]:
            for causal in options["causal"]:
                for length in options["lengths"]:
                    batch, heads = max(1, options["tokens"] // length), max(1, 2048 // dim)
                    shape = (batch, length, heads, dim)
                    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype, requires_grad=backward) for _ in "qkv")
                    g = torch.randn(shape, device="cuda", dtype=dtype)
                    with torch.set_grad_enabled(backward):
                        runs = contestants(q, k, v, g, causal=causal, backward=backward)
                        ms = milliseconds(runs, options["rounds"], options["calls"])
                    work = flop(batch, heads, length, dim, causal=causal, backward=backward)
                    yield {
                        "pass": "forward + backward" if backward else "forward",
                        "head_dim": dim,
                        "causal": causal,
                        "length": length,
                        "batch": batch,
                        "milliseconds": {name: round(t, 4) for name, t in ms.items()},
                        "tflops": {name: round(work / t / 1e9, 1) for name, t in ms.items()},
                    }


class Batch:
    """One of our calls over that many sequences of the first problem that the options name."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options["dtype"]]
        self.dim, self.length = options["head_dims"][0], options["lengths"][0]
        self.causal, self.backward = options["causal"][-1], options["backward"][-1]
        self.heads = max(1, 2048 // self.dim)

    def step(self, size: int, *, timed: bool) -> dict[str, Any] | None:
        """Its throughput and the most memory that it took; ``None`` where the memory ended."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        shape = (size, self.length, self.heads, self.dim)
        try:
            q, k, v = (torch.randn(shape, device="cuda", dtype=self.dtype, requires_grad=self.backward) for _ in "qkv")
            g = torch.randn(shape, device="cuda", dtype=self.dtype)

            def run() -> object:
                out = flash_attn_func(q, k, v, causal=self.causal)
                return torch.autograd.grad(out, (q, k, v), g) if self.backward else out

            ms = milliseconds({"ours": run}, 5, 1)["ours"] if timed else measure(run, 1)
        except torch.cuda.OutOfMemoryError:
            return None
        work = flop(size, self.heads, self.length, self.dim, causal=self.causal, backward=self.backward)
        memory = torch.cuda.max_memory_allocated() / 1e9
        return {"batch": size, "tflops": round(work / ms / 1e9, 1), "memory_gb": round(memory, 2)}


def tune_batch(options: dict[str, Any]) -> dict[str, Any]:
    """The batch from which throughput stops growing, and the largest that fits in memory (within a thirty-second).

    Sizes double until memory ends; they are timed well until two doublings in a row brought nothing.
    """
    batch = Batch(options)
    steps: list[dict[str, Any]] = []
    size = 1
    while step := batch.step(size, timed=not _settled(steps)):
        steps.append(step)
        size *= 2
    fits, too_many = size // 2, size
    while fits and too_many - fits > max(1, fits // 32):
        middle = (fits + too_many) // 2
        if batch.step(middle, timed=False):
            fits = middle
        else:
            too_many = middle
    best = max((s["tflops"] for s in steps), default=0.0)
    enough = next((s["batch"] for s in steps if s["tflops"] >= GROWN * best), None)
    return {"head_dim": batch.dim, "length": batch.length, "heads": batch.heads, "causal": batch.causal,
            "backward": batch.backward, "steps": steps, "enough": enough, "largest": fits or None}  # fmt: skip


def _settled(steps: list[dict[str, Any]]) -> bool:
    rates = [s["tflops"] for s in steps]
    return max(rates[:-2], default=0.0) >= GROWN * max(rates, default=1.0)


def main() -> int:
    """Measure what the options ask for."""
    if not torch.cuda.is_available():
        sys.stderr.write(f"torch {torch.__version__} finds no CUDA GPU\n")
        return 1
    options = json.loads(sys.argv[1])
    document: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "dtype": options["dtype"],
    }
    if options["tune_batch"]:
        document["tune_batch"] = tune_batch(options)
    else:
        document["rows"] = list(rows(options))
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
