"""Times flash_attn as a caller gets it next to torch's cuDNN and FlashAttention-2, and FlashAttention-3, for one_run.py.

Half of the problems are packed sequences. Lengths, batches and numbers of sequences are drawn by their logarithm. Rivals take
turns, every other round backwards; a figure is the median of the rounds, in microseconds of the GPU, which waits until the host
has launched all that is timed.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func
from torch.nn.attention import SDPBackend, sdpa_kernel

from flashdepot.prove.speed import milliseconds

try:
    import flash_attn_interface as fa3
except ImportError:
    fa3 = None

SHAPE = ("pass", "packed", "dtype", "dim", "causal", "heads_q", "heads_k", "lengths")
RIVALS = ("ours", "cudnn", "torch flash", "fa3")
DIMS = (64, 80, 96, 128, 192, 256)
SHORTEST, LONGEST, TOKENS = 64, 32768, 65536
MOST_WORK = 1e13
"""Floating-point operations of a forward pass."""
BEHIND = (0.9, 0.95, 0.97, 1.0)

Run = Callable[[], object]
Problem = dict[str, Any]


def problems(count: int, seed: int, dtypes: Sequence[str]) -> Iterator[Problem]:
    """Of one length for all sequences, or packed ones of any."""
    drawn = random.Random(seed)  # noqa: S311

    def by_logarithm(low: int, high: int) -> int:
        return round(math.exp(drawn.uniform(math.log(low), math.log(high))))

    while count > 0:
        packed, dim, group = drawn.random() < 0.5, drawn.choice(DIMS), drawn.choice((1, 2, 4, 8))  # noqa: PLR2004
        heads = group * drawn.choice([n for n in (1, 2, 4, 8, 16, 32) if 4 <= n * group <= 64])  # noqa: PLR2004
        if packed:
            lengths = []
            for _ in range(by_logarithm(2, 128)):
                lengths += [length] if sum(lengths) + (length := by_logarithm(SHORTEST, LONGEST)) <= TOKENS else []
        else:
            length = by_logarithm(SHORTEST, LONGEST)
            lengths = [length] * by_logarithm(1, max(1, TOKENS // length))
        problem = {
            "packed": int(packed),
            "dtype": drawn.choice(dtypes),
            "dim": dim,
            "causal": int(drawn.random() < 0.5),  # noqa: PLR2004
            "heads_q": heads,
            "heads_k": heads // group,
            "lengths": lengths,
        }
        if work(problem) <= MOST_WORK:
            count -= 1
            yield problem


def work(problem: Problem) -> float:
    """Floating-point operations of the forward pass; the backward pass has 2.5 times as many."""
    squares = sum(length * length for length in problem["lengths"])
    return 4.0 * problem["heads_q"] * problem["dim"] * squares * (0.5 if problem["causal"] else 1.0)


class Inputs:
    """Of a problem: q, k and v, and a gradient of o."""

    def __init__(self, problem: Problem) -> None:
        lengths, dim = problem["lengths"], problem["dim"]
        rows = (sum(lengths),) if problem["packed"] else (len(lengths), lengths[0])
        options = {"device": "cuda", "dtype": {"bf16": torch.bfloat16, "fp16": torch.float16}[problem["dtype"]]}
        heads = (problem["heads_q"], problem["heads_k"], problem["heads_k"])
        self.tensors = [torch.randn(*rows, n, dim, **options).requires_grad_() for n in heads]
        self.gradient = torch.randn(*rows, problem["heads_q"], dim, **options)
        self.starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
        self.longest = max(lengths)
        self.packed, self.causal = bool(problem["packed"]), bool(problem["causal"])
        self.grouped = heads[0] != heads[1]

    def flash(self, of: Any) -> Run:
        """The forward pass by a package with FlashAttention's names."""
        if not self.packed:
            return lambda: of.flash_attn_func(*self.tensors, causal=self.causal)
        ends = (self.starts, self.starts, self.longest, self.longest)
        return lambda: of.flash_attn_varlen_func(*self.tensors, *ends, causal=self.causal)

    def torch(self, backend: SDPBackend) -> Run | None:
        """The forward pass by a backend of torch; of packed sequences by what its own packed attention calls.

        cuDNN has none there: torch's operator for it makes a plan at every call, and its gradients are wrong (torch
        2.11; of nested tensors, which use it, too).
        """
        if not self.packed:
            turned = [tensor.transpose(1, 2) for tensor in self.tensors]

            def dense() -> Any:
                with sdpa_kernel(backend):
                    found = torch.nn.functional.scaled_dot_product_attention(
                        *turned, is_causal=self.causal, enable_gqa=self.grouped
                    )
                return found.transpose(1, 2)

            return dense
        if backend != SDPBackend.FLASH_ATTENTION:
            return None
        ends = (self.starts, self.starts, self.longest, self.longest)
        return lambda: torch.ops.aten._flash_attention_forward(*self.tensors, *ends, 0.0, self.causal, False)[0]  # noqa: SLF001

    def passes(self, forward: Run) -> tuple[Run, Run]:
        """Both, without what autograd keeps in the first one."""

        def first() -> object:
            with torch.no_grad():
                return forward()

        found: Any = forward()
        out = found[0] if isinstance(found, tuple) else found
        return first, lambda: torch.autograd.grad(out, self.tensors, self.gradient, retain_graph=True)


class Ours:
    """The wheel, with the names of a package."""

    flash_attn_func = staticmethod(flash_attn_func)
    flash_attn_varlen_func = staticmethod(flash_attn_varlen_func)


def measured(problem: Problem) -> Iterator[dict[str, Any]]:
    """A row for each pass: microseconds of each rival."""
    inputs = Inputs(problem)
    runs: dict[str, Run | None] = {
        "ours": inputs.flash(Ours),
        "cudnn": inputs.torch(SDPBackend.CUDNN_ATTENTION),
        "torch flash": inputs.torch(SDPBackend.FLASH_ATTENTION),
    } | ({"fa3": inputs.flash(fa3)} if fa3 else {})
    both: dict[str, dict[str, Run]] = {"fwd": {}, "bwd": {}}
    for name, run in runs.items():
        found = passes_of(inputs, run, f"{name}, {problem}") if run else []
        for which, one in zip(both, found, strict=False):
            both[which][name] = one
    shape = problem | {"lengths": "+".join(map(str, problem["lengths"])) if problem["packed"] else
                       f"{len(problem['lengths'])}x{problem['lengths'][0]}"}  # fmt: skip
    for which, rivals in both.items():
        times = milliseconds(rivals, rounds=4, long_enough=1.5, most=20, ran=True)
        yield {"pass": which, **shape, **{name: f"{1e3 * ms:.2f}" for name, ms in times.items()}}


def passes_of(inputs: Inputs, run: Run, what: str) -> list[Run]:
    """Those that a rival can do."""
    try:
        forward, backward = inputs.passes(run)
        forward()
    except (RuntimeError, TypeError) as error:
        print(f"{what}: {str(error).splitlines()[0]}", file=sys.stderr)
        return []
    try:
        backward()
    except RuntimeError as error:
        print(f"{what}, backward: {str(error).splitlines()[0]}", file=sys.stderr)
        return [forward]
    return [forward, backward]


def keys_of(row: dict[str, str]) -> float:
    """The mean number of keys of a query's sequence."""
    if not int(row["packed"]):
        return float(row["lengths"].split("x")[1])
    lengths = [int(word) for word in row["lengths"].split("+")]
    return sum(length * length for length in lengths) / sum(lengths)


def classes(row: dict[str, str]) -> Iterator[str]:
    """What a row counts for, in the order of the summary."""
    layout = "packed" if int(row["packed"]) else "dense"
    keys = keys_of(row)
    length = next(name for most, name in ((512, "to 512"), (2048, "to 2048"), (8192, "to 8192"), (1 << 30, "over 8192")) if keys <= most)  # fmt: skip
    yield row["pass"]
    yield f"{row['pass']} {layout}"
    yield f"{row['pass']} head dim {row['dim']}"
    yield f"{row['pass']} {layout}, {length} keys"
    yield f"{row['pass']} {'causal' if int(row['causal']) else 'full'}"
    yield f"{row['pass']} {'grouped heads' if row['heads_q'] != row['heads_k'] else 'a key head each'}"


def summary(rows: list[dict[str, str]]) -> Iterator[str]:
    """Geometric means, lowest, and how many are behind, by class; then the lowest."""
    for rival in (name for name in RIVALS[1:] if any(row.get(name) for row in rows)):
        found: dict[str, list[float]] = {}
        there = [row for row in rows if row.get(rival)]
        for row in there:
            for name in classes(row):
                found.setdefault(name, []).append(float(row[rival]) / float(row["ours"]))
        yield f"over {rival}: {'mean':>30} {'lowest':>7} {'of':>4}  under {', '.join(map(str, BEHIND))}"
        for name in sorted(found, key=lambda name: ("bwd" in name, name)):
            speeds = found[name]
            under = ", ".join(f"{sum(speed < least for speed in speeds)}" for least in BEHIND)
            yield f"  {name:36} {statistics.geometric_mean(speeds):7.3f} {min(speeds):7.2f} {len(speeds):4}  {under}"
        for row in sorted(there, key=lambda row: float(row[rival]) / float(row["ours"]))[:25]:
            times = ", ".join(f"{name} {row[name]}" for name in RIVALS if row.get(name))
            shape = " ".join(row[name] for name in SHAPE)
            yield f"    {float(row[rival]) / float(row['ours']):.2f} {shape[:100]}: {times}"
