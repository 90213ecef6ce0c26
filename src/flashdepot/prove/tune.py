"""Run inside the environment under test: time both families of an installed flash_attn, each point of a grid by each.

It imports torch and flash_attn and nothing of flashdepot. Its one argument is a JSON object of options; it prints one
JSON document. The times are the GPU's: it waits until the host has launched all that is timed.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

Run = Callable[[], object]

FAMILIES = {"fa4": 4, "fa2": 2}
ROUNDS, LONG_ENOUGH = 5, 6.0
"""Times that each is measured, and milliseconds of each."""
CYCLES = 2_000_000
"""Of the GPU's clock in a millisecond, about."""
TOKENS = 16384
HEADS = {64: 32, 96: 16, 128: 16, 192: 8, 256: 8}
GROUPS = (1, 4, 8)
PASSES = {"dense": ("fwd", "bwd"), "packed": ("fwd", "bwd"), "cache": ("fwd",)}


def problems(head_dims: Sequence[int], lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Head dims of the kernels, masks, lengths with the same number of tokens, and query heads per key head."""
    for kind, passes in PASSES.items():
        for kernel, dim, mask, length, group in itertools.product(
            passes, head_dims, ("full", "causal", "local"), lengths, GROUPS
        ):
            shape = {"batch": max(1, TOKENS // length), "seqlen": length}
            heads = {"heads_q": HEADS[dim], "heads_k": HEADS[dim] // group}
            yield {"kind": kind, "kernel": kernel, "head_dim": dim, "mask": mask, **shape, **heads}


def runs(problem: dict[str, Any], dtype: torch.dtype) -> dict[str, Run]:
    """The pass of a problem by each family. Packed sequences lie one after the other in one tensor; caches are full.

    :raises RuntimeError: where a family has no kernel for it.
    """
    from flash_attn_2_cuda import library  # noqa: PLC0415  (other wheels have none)

    batch, length, dim, kind = (problem[name] for name in ("batch", "seqlen", "head_dim", "kind"))
    backward = problem["kernel"] == "bwd"

    def tensor(heads: int, *, grad: bool = backward) -> torch.Tensor:
        rows = (batch * length,) if kind == "packed" else (batch, length)
        return torch.randn(*rows, heads, dim, device="cuda", dtype=dtype, requires_grad=grad)

    q, k, v = tensor(problem["heads_q"]), tensor(problem["heads_k"]), tensor(problem["heads_k"])
    g = tensor(problem["heads_q"], grad=False)
    mask: dict[str, Any] = {"causal": problem["mask"] == "causal"}
    if problem["mask"] == "local":
        mask = {"window_size": (length // 4, 0)}
    starts = torch.arange(0, (batch + 1) * length, length, device="cuda", dtype=torch.int32)
    full = torch.full((batch,), length, device="cuda", dtype=torch.int32)

    def forward() -> Any:
        if kind == "cache":
            return flash_attn_with_kvcache(q, k, v, cache_seqlens=full, **mask)
        if kind == "packed":
            return flash_attn_varlen_func(q, k, v, starts, starts, length, length, **mask)
        return flash_attn_func(q, k, v, **mask)

    def of(number: int) -> Run:
        library._family = number  # noqa: SLF001  (what FLASH_ATTENTION_FAMILY sets)
        out = forward()

        def run() -> object:
            library._family = number  # noqa: SLF001
            if backward:
                return torch.autograd.grad(out, (q, k, v), g, retain_graph=True)
            return forward()

        run()
        return run

    before = library._family  # noqa: SLF001
    try:
        return {name: of(number) for name, number in FAMILIES.items()}
    finally:
        library._family = before  # noqa: SLF001


class Timed:
    """Times a run on the GPU: the host launches all calls while the GPU waits, so that its own speed does not count.

    A short backward pass takes the GPU less time than Python takes to launch it.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._host(2)
        torch.cuda.synchronize()
        self.wait = self._host(2) / 2  # milliseconds that the host takes for a call

    def _host(self, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            self.run()
        return (time.perf_counter() - begin) * 1e3

    def measure(self, calls: int) -> float:
        """Milliseconds of one call, over several in a row."""
        for _ in range(4):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(int((0.1 + 1.3 * self.wait * calls) * CYCLES))  # noqa: SLF001  (torch's own tests use it)
            begin.record()
            host = self._host(calls)
            end.record()
            in_time = not begin.query()
            end.synchronize()
            if in_time:
                break
            self.wait = max(1.5 * self.wait, host / calls)
        return float(begin.elapsed_time(end)) / calls


def milliseconds(runs: dict[str, Run]) -> dict[str, float]:
    """Median milliseconds of one call of each, taken in turn, each time for about LONG_ENOUGH of them."""
    timed = {name: Timed(run) for name, run in runs.items()}
    calls = {name: max(1, min(50, math.ceil(LONG_ENOUGH / one.measure(3)))) for name, one in timed.items()}
    rounds = [{name: one.measure(calls[name]) for name, one in timed.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(one[name] for one in rounds) for name in runs}


def work(problem: dict[str, Any]) -> float:
    """Floating-point operations; a backward pass counts as 2.5 forward passes."""
    squares = problem["batch"] * problem["seqlen"] ** 2 * (0.5 if problem["mask"] == "causal" else 1.0)
    forward: float = 4.0 * problem["heads_q"] * problem["head_dim"] * squares
    return forward * (2.5 if problem["kernel"] == "bwd" else 1.0)


def rows(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The TFLOP/s of both families at each point that both can do."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options["dtype"]]
    for problem in problems(options["head_dims"], options["lengths"]):
        with torch.set_grad_enabled(problem["kernel"] == "bwd"):
            try:
                found = runs(problem, dtype)
            except (RuntimeError, ImportError):
                continue
            times = milliseconds(found)
        yield {**problem, **{name: float(f"{work(problem) / ms / 1e9:.4g}") for name, ms in times.items()}}


def main() -> int:
    """Measure what the options ask for."""
    if not torch.cuda.is_available():
        sys.stderr.write(f"torch {torch.__version__} finds no CUDA GPU\n")
        return 1
    options = json.loads(sys.argv[1])
    major, minor = torch.cuda.get_device_capability()
    facts = {"gpu": torch.cuda.get_device_name(), "arch": 10 * major + minor, "torch": torch.__version__}
    sys.stdout.write(json.dumps({**facts, "dtype": options["dtype"], "rows": list(rows(options))}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
