"""Times both families on this machine's GPU and writes the table by which calls are given to one of them.

Usage: python benchmarks/family_speed.py [--kind KIND] [TABLE]     where torch, GPUs, flashdepot and a wheel of both families are
       python benchmarks/family_speed.py [--kind KIND] --check     whether what is dispatched is the fastest, for every point

KIND is dense, packed or cache (forward alone), and TABLE the one of it in src/flashdepot/kernels/fa4, unless another is
named. Rows of other architectures stay, and those of lengths that --lengths leaves out. A library is built anew after a table
has changed, its kernels are not. Each GPU that is visible measures a share. A point where what is dispatched seems late is
measured again, for longer. --rows FILE keeps every point, with what was dispatched. The times are the GPU's alone: it waits
until the host has launched all that is timed.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import io
import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_2_cuda import library

from flashdepot.kernels.fa4.actions import TABLES
from flashdepot.prove.speed import flop

COLUMNS = ("arch", "kernel", "head_dim", "mask", "batch", "seqlen", "heads_q", "heads_k", "fa4", "fa2")
FAMILIES = {"fa4": 4, "fa2": 2, "dispatch": 0}
ALLOWED = 0.97
"""What is dispatched may have this part of the best family's speed: the rest is noise."""
ROUNDS, LONG_ENOUGH = 5, 6.0
AGAIN = 4
"""How many times as many rounds a point is measured for the second time."""
CYCLES = 2_000_000
"""Of the GPU's clock in a millisecond, about."""
TOKENS = 16384
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HEADS = {64: 32, 96: 16, 128: 16, 192: 8, 256: 8}
GROUPS = (1, 4, 8)


def problems(lengths: Sequence[int], passes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Head dims of the kernels, masks, lengths with the same number of tokens, and query heads per key head."""
    for kernel, dim, mask, length, group in itertools.product(
        passes, HEADS, ("full", "causal", "local"), lengths, GROUPS
    ):
        batch = max(1, TOKENS // length)
        shape = {"batch": batch, "seqlen": length, "heads_q": HEADS[dim], "heads_k": HEADS[dim] // group}
        yield {"kernel": kernel, "head_dim": dim, "mask": mask, **shape}


def runs(problem: dict[str, Any], families: Iterable[str], kind: str) -> dict[str, Callable[[], object]]:
    """The pass of a problem by each family. Packed sequences lie one after the other in one tensor; caches are full."""
    batch, length, dim = problem["batch"], problem["seqlen"], problem["head_dim"]
    backward = problem["kernel"] == "bwd"

    def tensor(heads: int, *, grad: bool = backward) -> torch.Tensor:
        rows = (batch * length,) if kind == "packed" else (batch, length)
        return torch.randn(*rows, heads, dim, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    q, k, v = tensor(problem["heads_q"]), tensor(problem["heads_k"]), tensor(problem["heads_k"])
    g = tensor(problem["heads_q"], grad=False)
    mask = {"causal": problem["mask"] == "causal"}
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

    def of(number: int) -> Callable[[], object]:
        library._family = number  # noqa: SLF001  (what FLASH_ATTENTION_FAMILY sets)
        out = forward()

        def run() -> object:
            library._family = number  # noqa: SLF001
            if backward:
                return torch.autograd.grad(out, (q, k, v), g, retain_graph=True)
            return forward()

        return run

    return {name: of(FAMILIES[name]) for name in families}


class Timed:
    """Times a run on the GPU: the host launches all calls while the GPU waits, so that its own speed does not count.

    A short backward pass takes the GPU less time than Python takes to launch it.
    """

    def __init__(self, run: Callable[[], object]) -> None:
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


def milliseconds(runs: dict[str, Callable[[], object]], longer: int = 1) -> dict[str, float]:
    """Median milliseconds of one call of each, taken in turn, each time for about LONG_ENOUGH of them."""
    timed = {name: Timed(run) for name, run in runs.items()}
    calls = {name: max(1, min(50, math.ceil(LONG_ENOUGH / one.measure(3)))) for name, one in timed.items()}
    rounds = [{name: one.measure(calls[name]) for name, one in timed.items()} for _ in range(ROUNDS * longer)]
    return {name: statistics.median(one[name] for one in rounds) for name in runs}


def is_late(times: dict[str, float]) -> bool:
    """Whether the best family is faster than what is dispatched by more than noise."""
    return "dispatch" in times and min(times.values()) < ALLOWED * times["dispatch"]


def measured(arch: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each problem of a share; TFLOP/s of the backward pass count 2.5 forward passes."""
    first, step = options.share
    families = FAMILIES if options.check else ("fa4", "fa2")
    for problem in list(problems(options.lengths, options.passes))[first::step]:
        shape = (problem["batch"], problem["heads_q"], problem["seqlen"], problem["head_dim"])
        forward = flop(*shape, causal=problem["mask"] == "causal", backward=False)
        work = forward * (2.5 if problem["kernel"] == "bwd" else 1.0)
        with torch.set_grad_enabled(problem["kernel"] == "bwd"):
            found = runs(problem, families, options.kind)
            times = milliseconds(found)
            if is_late(times):
                times = milliseconds(found, AGAIN)
        yield {"arch": arch, **problem, **{name: f"{work / ms / 1e9:.4g}" for name, ms in times.items()}}


def by_all_gpus(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of every problem, measured by a process for each GPU."""
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    chosen = ["--lengths", ",".join(map(str, options.lengths)), "--passes", ",".join(options.passes)]
    chosen += ["--kind", options.kind, *["--check"] * options.check]
    running = [
        subprocess.Popen(
            [sys.executable, __file__, *chosen, "--share", str(i), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": visible[i]},
        )
        for i in range(count)
    ]
    shares = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running), "a GPU's share is missing: see above"
    rows = [row for share in shares for row in csv.DictReader(share.splitlines())]
    order = {key(problem): place for place, problem in enumerate(problems(options.lengths, options.passes))}
    return sorted(rows, key=lambda row: order[key(row)])


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """Which problem a row is of."""
    return tuple(str(row[name]) for name in COLUMNS[1:-2])


def check(rows: list[dict[str, Any]]) -> int:
    """Name the points whose dispatched family is not the fastest."""
    late = []
    for row in rows:
        best = max(float(row["fa4"]), float(row["fa2"]))
        ratio = float(row["dispatch"]) / best
        if ratio < ALLOWED:
            late.append((ratio, ",".join(str(row[name]) for name in (*COLUMNS, "dispatch"))))
    faster = sum(float(row["fa4"]) >= float(row["fa2"]) for row in rows)
    print(f"{len(rows)} points, fa4 the faster one at {faster}; dispatched under {ALLOWED} of the best at {len(late)}")
    for ratio, text in sorted(late):
        print(f"  {ratio:.3f} {text}")
    return bool(late)


def main() -> int:
    """Measure, then write or compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--kind", choices=TABLES, default="dense")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--lengths", type=lambda text: tuple(map(int, text.split(","))), default=LENGTHS)
    parser.add_argument("--passes", type=lambda text: tuple(text.split(",")), default=("fwd", "bwd"))
    parser.add_argument("--share", type=int, nargs=2)
    options = parser.parse_args()
    if options.kind == "cache":
        options.passes = ("fwd",)
    table = options.table or TABLES[options.kind]
    major, minor = torch.cuda.get_device_capability()
    arch = major * 10 + minor
    if options.share:
        writer = csv.DictWriter(sys.stdout, (*COLUMNS, "dispatch"), lineterminator="\n")
        writer.writeheader()
        for row in measured(arch, options):
            writer.writerow(row)
            sys.stdout.flush()
        return 0
    found = by_all_gpus(options)
    if options.rows:
        with options.rows.open("w", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*COLUMNS, "dispatch"), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    if options.check:
        return check(found)
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    before = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    new = {key(row): row for row in found}
    others = [row for row in before if int(row["arch"]) != arch]
    rows = [*others, *(new.pop(key(row), row) for row in before if int(row["arch"]) == arch), *new.values()]
    notes = [line for line in lines if line.startswith("#") and not line.startswith(f"# {arch}:")]
    text = io.StringIO()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    print(*notes, f"# {arch}: {torch.cuda.get_device_name()}, {today}, TFLOP/s, bf16.", sep="\n", file=text)
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    table.write_text(text.getvalue().lstrip("\n"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
