"""Times both families on this machine's GPU and writes the table by which calls are given to one of them.

Usage: python benchmarks/family_speed.py [--packed] [TABLE]     where torch, GPUs and a wheel with both families are
       python benchmarks/family_speed.py [--packed] --check     whether what is dispatched is the fastest, for every point

TABLE is src/flashdepot/families/fa4/speed.csv, and with --packed, for packed sequences, speed_uneven.csv there, unless
another is named. Rows of other architectures stay. A library is built anew after a table has changed, its kernels are
not. Each GPU that is visible measures a share. A point where what is dispatched seems late is measured again, for longer.
--rows FILE keeps every point, with what was dispatched.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func
from flash_attn_2_cuda import library

from flashdepot.prove.speed import flop, measure

TABLES = Path(__file__).parents[1] / "src/flashdepot/families/fa4"
TABLE, PACKED = TABLES / "speed.csv", TABLES / "speed_uneven.csv"
COLUMNS = ("arch", "kernel", "head_dim", "mask", "batch", "seqlen", "heads_q", "heads_k", "fa4", "fa2")
FAMILIES = {"fa4": 4, "fa2": 2, "dispatch": 0}
ALLOWED = 0.97
"""What is dispatched may have this part of the best family's speed: the rest is noise."""
ROUNDS, LONG_ENOUGH = 5, 6.0
AGAIN = 4
"""How much longer a point is measured the second time."""
TOKENS = 16384
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HEADS = {64: 32, 96: 16, 128: 16, 192: 8, 256: 8}
GROUPS = (1, 4, 8)


def problems() -> Iterator[dict[str, Any]]:
    """Head dims of the kernels, masks, lengths with the same number of tokens, and query heads per key head."""
    for kernel, dim, mask, length, group in itertools.product(
        ("fwd", "bwd"), HEADS, ("full", "causal", "local"), LENGTHS, GROUPS
    ):
        batch = max(1, TOKENS // length)
        shape = {"batch": batch, "seqlen": length, "heads_q": HEADS[dim], "heads_k": HEADS[dim] // group}
        yield {"kernel": kernel, "head_dim": dim, "mask": mask, **shape}


def runs(problem: dict[str, Any], *, packed: bool) -> dict[str, Callable[[], object]]:
    """The pass of a problem by each family; packed: with its sequences one after the other in one tensor."""
    batch, length, dim = problem["batch"], problem["seqlen"], problem["head_dim"]
    backward = problem["kernel"] == "bwd"

    def tensor(heads: int, *, grad: bool = backward) -> torch.Tensor:
        rows = (batch * length,) if packed else (batch, length)
        return torch.randn(*rows, heads, dim, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    q, k, v = tensor(problem["heads_q"]), tensor(problem["heads_k"]), tensor(problem["heads_k"])
    g = tensor(problem["heads_q"], grad=False)
    mask = {"causal": problem["mask"] == "causal"}
    if problem["mask"] == "local":
        mask = {"window_size": (length // 4, 0)}
    starts = torch.arange(0, (batch + 1) * length, length, device="cuda", dtype=torch.int32)

    def forward() -> Any:
        if packed:
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

    return {name: of(number) for name, number in FAMILIES.items()}


def milliseconds(runs: dict[str, Callable[[], object]], longer: int = 1) -> dict[str, float]:
    """Median milliseconds of one call of each, taken in turn, each time for about LONG_ENOUGH times ``longer`` of them."""
    calls = {}
    for name, run in runs.items():
        measure(run, 1)
        calls[name] = max(1, min(50 * longer, math.ceil(longer * LONG_ENOUGH / measure(run, 2))))
    rounds = [{name: measure(run, calls[name]) for name, run in runs.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(one[name] for one in rounds) for name in runs}


def is_late(times: dict[str, float]) -> bool:
    """Whether the best family is faster than what is dispatched by more than noise."""
    return min(times.values()) < ALLOWED * times["dispatch"]


def measured(arch: int, first: int, step: int, *, packed: bool) -> Iterator[dict[str, Any]]:
    """A row for each problem of a share; TFLOP/s of the backward pass count 2.5 forward passes."""
    for problem in list(problems())[first::step]:
        shape = (problem["batch"], problem["heads_q"], problem["seqlen"], problem["head_dim"])
        forward = flop(*shape, causal=problem["mask"] == "causal", backward=False)
        work = forward * (2.5 if problem["kernel"] == "bwd" else 1.0)
        with torch.set_grad_enabled(problem["kernel"] == "bwd"):
            found = runs(problem, packed=packed)
            times = milliseconds(found)
            if is_late(times):
                times = milliseconds(found, AGAIN)
        yield {"arch": arch, **problem, **{name: f"{work / ms / 1e9:.4g}" for name, ms in times.items()}}


def by_all_gpus(*, packed: bool) -> list[dict[str, Any]]:
    """The rows of every problem, measured by a process for each GPU."""
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    running = [
        subprocess.Popen(
            [sys.executable, __file__, *(["--packed"] if packed else []), "--share", str(i), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": visible[i]},
        )
        for i in range(count)
    ]
    shares = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running), "a GPU's share is missing: see above"
    rows = [row for share in shares for row in csv.DictReader(share.splitlines())]
    order = {tuple(map(str, problem.values())): place for place, problem in enumerate(problems())}
    names = ("kernel", "head_dim", "mask", "batch", "seqlen", "heads_q", "heads_k")
    return sorted(rows, key=lambda row: order[tuple(row[name] for name in names)])


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
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--share", type=int, nargs=2)
    options = parser.parse_args()
    table = options.table or (PACKED if options.packed else TABLE)
    major, minor = torch.cuda.get_device_capability()
    arch = major * 10 + minor
    if options.share:
        writer = csv.DictWriter(sys.stdout, (*COLUMNS, "dispatch"), lineterminator="\n")
        writer.writeheader()
        for row in measured(arch, *options.share, packed=options.packed):
            writer.writerow(row)
            sys.stdout.flush()
        return 0
    found = by_all_gpus(packed=options.packed)
    if options.rows:
        with options.rows.open("w", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*COLUMNS, "dispatch"), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    if options.check:
        return check(found)
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    before = csv.DictReader(line for line in lines if not line.startswith("#"))
    others = [row for row in before if int(row["arch"]) != arch]
    rows = [*others, *found]
    notes = [line for line in lines if line.startswith("#") and others]
    text = io.StringIO()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    print(*notes, f"# {arch}: {torch.cuda.get_device_name()}, {today}, TFLOP/s, bf16.", sep="\n", file=text)
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    table.write_text(text.getvalue().lstrip("\n"), encoding="utf-8")
    check(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
