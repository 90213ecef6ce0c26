"""Run inside the environment under test: time flash_attn on this machine's GPU.

Next to torch's own attention, or each point of a grid by each of its families.

It imports torch and flash_attn and nothing of flashdepot. Its one argument is a JSON object of options; it prints one
JSON document. The times are the GPU's, rivals in turn: it waits until the host has launched all that is timed.
"""

from __future__ import annotations

import contextlib
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
from torch.nn.attention import SDPBackend, sdpa_kernel

Run = Callable[[], object]

BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": getattr(SDPBackend, "CUDNN_ATTENTION", None),
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}

FAMILIES = {"fa4": 4, "fa2": 2}
"""Families that our library may have, by the numbers of FLASH_ATTENTION_FAMILY."""

ROUNDS, LONG_ENOUGH = 5, 6.0
"""Times that each is measured, and milliseconds of each."""
CYCLES = 2_000_000
"""Of the GPU's clock in a millisecond, about."""
TOKENS = 16384
"""Of a problem, about."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def flop(problem: dict[str, Any], *, forward: bool = True, backward: bool = False) -> float:
    """Floating-point operations: two matrix products forward, and five backward."""
    squares = problem["batch"] * problem["seqlen"] ** 2 * (0.5 if problem["mask"] == "causal" else 1.0)
    product: float = 4.0 * problem["heads_q"] * problem["head_dim"] * squares
    return product * (forward + 2.5 * backward)


class Timed:
    """Times a run on the GPU: the host launches all calls while the GPU waits, so that its own speed does not count.

    A short backward pass takes the GPU less time than Python takes to launch it.
    """

    def __init__(self, run: Run, *, ran: bool = False) -> None:
        """``ran``: it did so before, and has nothing left to load or to plan."""
        self.run = run
        if not ran:
            self._host(1)
        torch.cuda.synchronize()
        self.wait = self._host(1)  # milliseconds that the host takes for a call

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


def milliseconds(
    runs: dict[str, Run],
    *,
    rounds: int = ROUNDS,
    long_enough: float = LONG_ENOUGH,
    most: int = 50,
    ran: bool = False,
) -> dict[str, float]:
    """Median milliseconds of one call of each, taken in turn, each time for about long_enough, and at most so many calls.

    Every other round is backwards: where power is short, what runs after a rival that needs less of it is faster.
    """
    timed = {name: Timed(run, ran=ran) for name, run in runs.items()}
    first = {name: one.measure(1) for name, one in timed.items()}
    calls = {name: max(1, min(most, math.ceil(long_enough / ms))) for name, ms in first.items()}
    found = {name: [ms] if calls[name] == 1 else [] for name, ms in first.items()}
    for number in range(rounds):
        for name, one in list(timed.items())[:: -1 if number % 2 else 1]:
            if len(found[name]) <= number:
                found[name].append(one.measure(calls[name]))
    return {name: statistics.median(times) for name, times in found.items()}


def by_family(run: Run) -> dict[str, Run]:
    """``run`` by each family of kernels; nothing where flash_attn has one family for it, or is another wheel than ours."""
    found = {}
    for name, number in FAMILIES.items():
        with contextlib.suppress(RuntimeError, ImportError):
            by = forced(run, number)
            by()
            found[name] = by
    return found if len(found) > 1 else {}


def forced(run: Run, number: int) -> Run:
    """``run`` by the family with this number of FLASH_ATTENTION_FAMILY; :raises ImportError: for another wheel than ours."""
    from flash_attn_2_cuda import library  # noqa: PLC0415  (other wheels have none)

    def run_by() -> object:
        before, library._family = library._family, number  # noqa: SLF001
        try:
            return run()
        finally:
            library._family = before  # noqa: SLF001

    return run_by


def contestants(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, *, causal: bool, backward: bool
) -> dict[str, Run]:
    """Every implementation that takes these inputs: ours first, then its families if it has several."""

    def ours() -> object:
        out = flash_attn_func(q, k, v, causal=causal)
        return torch.autograd.grad(out, (q, k, v), g) if backward else out

    turned = tuple(t.detach().transpose(1, 2).requires_grad_(backward) for t in (q, k, v))
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
        with contextlib.suppress(RuntimeError):
            run = rival(backend)
            run()
            found[name] = run
    return found


def rows(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The grid: about the same number of tokens in each problem, 2048 / head dim heads."""
    asked = (options[name] for name in ("backward", "head_dims", "causal", "lengths"))
    for backward, dim, causal, length in itertools.product(*asked):
        shape = (max(1, TOKENS // length), length, max(1, 2048 // dim), dim)
        with torch.set_grad_enabled(backward):
            ms = milliseconds(contestants(*inputs(options, shape, grad=backward), causal=causal, backward=backward))
        work = flop(_problem(shape, causal=causal), backward=backward)
        yield {
            "pass": "forward + backward" if backward else "forward",
            "head_dim": dim,
            "causal": causal,
            "length": length,
            "batch": shape[0],
            "milliseconds": {name: round(t, 4) for name, t in ms.items()},
            "tflops": {name: round(work / t / 1e9, 1) for name, t in ms.items()},
        }


def inputs(options: dict[str, Any], shape: tuple[int, ...], *, grad: bool) -> list[torch.Tensor]:
    """q, k, v and the gradient of their output, (batch, length, heads, head dim) each."""
    made = [torch.randn(shape, device="cuda", dtype=DTYPES[options["dtype"]]) for _ in range(4)]
    return [*(tensor.requires_grad_(grad) for tensor in made[:3]), made[3]]


def _problem(shape: tuple[int, ...], *, causal: bool) -> dict[str, Any]:
    named = dict(zip(("batch", "seqlen", "heads_q", "head_dim"), shape, strict=True))
    return {**named, "mask": "causal" if causal else "full"}


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


def by_each(problem: dict[str, Any], dtype: torch.dtype) -> dict[str, Run]:
    """The pass of a problem by each family. Packed sequences lie one after the other in one tensor; caches are full.

    :raises RuntimeError: where a family has no kernel for it.
    """
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

    found = {}
    for name, number in FAMILIES.items():
        out = forced(forward, number)()

        def run(out: Any = out) -> object:
            return torch.autograd.grad(out, (q, k, v), g, retain_graph=True) if backward else forward()

        found[name] = forced(run, number)
        found[name]()
    return found


def points(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The TFLOP/s of both families at each point that both can do."""
    for problem in problems(options["head_dims"], options["lengths"]):
        with torch.set_grad_enabled(problem["kernel"] == "bwd"):
            try:
                found = by_each(problem, DTYPES[options["dtype"]])
            except (RuntimeError, ImportError):
                continue
            times = milliseconds(found)
        work = flop(problem, forward=problem["kernel"] == "fwd", backward=problem["kernel"] == "bwd")
        yield {**problem, **{name: float(f"{work / ms / 1e9:.4g}") for name, ms in times.items()}}


def main() -> int:
    """Measure what the options ask for."""
    if not torch.cuda.is_available():
        sys.stderr.write(f"torch {torch.__version__} finds no CUDA GPU\n")
        return 1
    options = json.loads(sys.argv[1])
    major, minor = torch.cuda.get_device_capability()
    document: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "arch": 10 * major + minor,
        "torch": torch.__version__,
        "dtype": options["dtype"],
    }
    document["rows"] = list({"rivals": rows, "families": points}[options["what"]](options))
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
