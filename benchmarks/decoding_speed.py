"""Times decoding as a caller gets it next to torch's cuDNN and FlashAttention-2, FlashAttention-3 and a copy, for one_run.py.

A problem is one query for each sequence, over as many keys for all. Each rival's calls are a CUDA graph over buffers larger
than the L2 cache; rivals take turns, and a figure is the median of the rounds. "copy" reads half of the bytes of the keys and
values and writes as many: the time in which the memory could have read all.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from flash_attn import flash_attn_func
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import flash_attn_interface as fa3
except ImportError:
    fa3 = None

SHAPE = ("dtype", "dim", "heads_q", "heads_k", "batch", "keys")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
RIVALS = ("ours", "cudnn", "torch flash", "fa3", "copy")
MOST_BYTES = 8 << 30
"""Of the keys and values of a problem."""
LARGER_THAN_L2 = 300 << 20
ROUNDS, LONG_ENOUGH = 3, 4.0
"""Times that each rival is measured, and milliseconds of each."""

Call = Callable[[], object]
Problem = dict[str, Any]


def problems(count: int, seed: int, dtypes: Sequence[str]) -> Iterator[Problem]:
    """Batches and keys are drawn by their logarithm."""
    drawn = random.Random(seed)  # noqa: S311

    def by_logarithm(low: int, high: int) -> int:
        return round(math.exp(drawn.uniform(math.log(low), math.log(high))))

    while count > 0:
        dim, heads = drawn.choice((64, 128, 256)), drawn.choice((8, 16, 32, 64))
        group = drawn.choice((1, 2, 4, 8))
        sizes = (drawn.choice(dtypes), dim, heads, heads // group, by_logarithm(1, 256), by_logarithm(512, 131072))
        problem = dict(zip(SHAPE, sizes, strict=True))
        if bytes_of(problem) <= MOST_BYTES:
            count -= 1
            yield problem


def bytes_of(problem: Problem) -> int:
    """Of the keys and values."""
    return 4 * math.prod(int(problem[name]) for name in ("batch", "keys", "heads_k", "dim"))


def calls_of(problem: Problem) -> dict[str, list[Call]]:
    """The calls of each rival, each over other buffers."""
    batch, keys, dim = problem["batch"], problem["keys"], problem["dim"]
    options = {"device": "cuda", "dtype": DTYPES[problem["dtype"]]}
    calls: dict[str, list[Call]] = {name: [] for name in RIVALS}

    def by_torch(backend: SDPBackend, q: Any, k: Any, v: Any) -> object:
        turned = (tensor.transpose(1, 2) for tensor in (q, k, v))
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(*turned, enable_gqa=q.shape[2] != k.shape[2])

    for _ in range(max(1, math.ceil(LARGER_THAN_L2 / bytes_of(problem)))):
        q = torch.randn(batch, 1, problem["heads_q"], dim, **options)
        k, v = (torch.randn(batch, keys, problem["heads_k"], dim, **options) for _ in range(2))
        calls["ours"].append(lambda q=q, k=k, v=v: flash_attn_func(q, k, v))
        calls["cudnn"].append(lambda q=q, k=k, v=v: by_torch(SDPBackend.CUDNN_ATTENTION, q, k, v))
        calls["torch flash"].append(lambda q=q, k=k, v=v: by_torch(SDPBackend.FLASH_ATTENTION, q, k, v))
        if fa3:
            calls["fa3"].append(lambda q=q, k=k, v=v: fa3.flash_attn_func(q, k, v, num_splits=0))
        to = torch.empty_like(k)
        calls["copy"].append(lambda k=k, to=to: to.copy_(k))
    return calls


class Graph:
    """The calls of a rival as a graph."""

    def __init__(self, calls: Sequence[Call]) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            calls[0]()
        torch.cuda.synchronize()
        self.calls = max(len(calls), 8)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            for number in range(self.calls):
                calls[number % len(calls)]()
        self.replays = 1
        self.microseconds()
        self.replays = max(1, min(50, math.ceil(LONG_ENOUGH * 1e3 / (self.calls * self.microseconds()))))

    def microseconds(self) -> float:
        """Of one call."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(self.replays):
            self.graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / (self.replays * self.calls)


def graph_of(calls: Sequence[Call]) -> Graph | None:
    """Their graph, or None where a backend does not take the problem."""
    try:
        return Graph(calls)
    except RuntimeError as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return None


@torch.no_grad()
def measured(problem: Problem) -> Iterator[dict[str, Any]]:
    """One row: microseconds of each rival."""
    made = {name: graph_of(calls) for name, calls in calls_of(problem).items() if calls}
    graphs = {name: graph for name, graph in made.items() if graph is not None}
    rounds = [{name: graph.microseconds() for name, graph in graphs.items()} for _ in range(ROUNDS)]
    yield {**problem, **{name: f"{statistics.median(one[name] for one in rounds):.2f}" for name in graphs}}
    del graphs, made
    torch.cuda.empty_cache()


def summary(rows: list[dict[str, str]]) -> Iterator[str]:
    """What the README of the benchmarks tells of them."""
    for rival in RIVALS[1:]:
        ratios = sorted((float(row[rival]) / float(row["ours"]), row) for row in rows if row.get(rival))
        if not ratios:
            continue
        speeds = [ratio for ratio, _ in ratios]
        under = ", ".join(f"under {least} {sum(speed < least for speed in speeds)}" for least in (0.9, 0.95, 0.97, 1.0))
        yield f"over {rival}: {statistics.geometric_mean(speeds):.3f}, lowest {speeds[0]:.2f}, of {len(speeds)} {under}"
    copies = [bytes_of(row) / float(row["copy"]) / 1e6 for row in rows]
    ours = [bytes_of(row) / float(row["ours"]) / 1e6 for row in rows]
    yield f"TB/s: ours up to {max(ours):.2f}, copies up to {max(copies):.2f}"
