"""Times flash_attn as a caller gets it beside torch's cuDNN and FlashAttention-2, forward and backward.

Usage: python benchmarks/attention_speed.py [--lengths 512,4096] [--csv FILE]      on all GPUs that are visible, each a share;
       with torch, the wheel, and flashdepot

Rivals take turns; a figure is the median of the rounds, in TFLOP/s, where a backward pass counts as 2.5 forward passes.
"fa2" is the wheel's own, forced; "torch flash" is torch's copy of FlashAttention-2.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from family_speed import milliseconds
from flash_attn import flash_attn_func, flash_attn_varlen_func
from flash_attn_2_cuda import library
from torch.nn.attention import SDPBackend, sdpa_kernel

from flashdepot.prove.speed import Run

DIMS = (64, 96, 128, 192, 256)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
GROUPS = (1, 4, 8)
TOKENS = 16384
SHAPE = ("kind", "dim", "mask", "length", "group", "batch", "heads")
RIVALS = ("ours", "cudnn", "torch flash", "fa2")


def problems(lengths: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Dense problems of about the same number of tokens, and a mix of lengths."""
    for which, dim, mask, length, group in itertools.product(
        ("fwd", "bwd"), DIMS, ("full", "causal"), (*lengths, 0), GROUPS
    ):
        heads = max(8, (1024 if length > TOKENS else 2048) // dim)
        shape = {"length": length, "group": group, "batch": max(1, TOKENS // length) if length else 8}
        yield {"kind": which, "dim": dim, "mask": mask, **shape, "heads": heads // 8 * 8}


def ours(inputs: Any, gradient: Any, forward: Callable[[], Any], family: int, *, backward: bool) -> Run:
    """A pass by a family, or by dispatch with family 0."""
    library._family = family  # noqa: SLF001  (what FLASH_ATTENTION_FAMILY sets)
    out = forward() if backward else None

    def run() -> object:
        library._family = family  # noqa: SLF001
        return torch.autograd.grad(out, inputs, gradient, retain_graph=True) if backward else forward()

    return run


def rival(
    inputs: Any, gradient: Any, backend: SDPBackend, *, causal: bool, grouped: bool, backward: bool
) -> Run | None:
    """A pass by a backend of torch's own attention, or None where it does not take the problem."""
    turned = [t.detach().transpose(1, 2).requires_grad_(backward) for t in inputs]
    turned_gradient = gradient.transpose(1, 2)

    def forward() -> Any:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal, enable_gqa=grouped)

    try:
        out = forward()
        if backward:
            torch.autograd.grad(out, turned, turned_gradient, retain_graph=True)
    except RuntimeError:
        return None
    if not backward:
        return forward
    return lambda: torch.autograd.grad(out, turned, turned_gradient, retain_graph=True)


def dense(problem: dict[str, Any]) -> tuple[dict[str, Run], float]:
    batch, length, heads, dim = (problem[name] for name in ("batch", "length", "heads", "dim"))
    backward, causal = problem["kind"] == "bwd", problem["mask"] == "causal"
    options = {"device": "cuda", "dtype": torch.bfloat16}
    inputs = [
        torch.randn(batch, length, n, dim, **options).requires_grad_(backward)
        for n in (heads, heads // problem["group"], heads // problem["group"])
    ]
    gradient = torch.randn(batch, length, heads, dim, **options)

    def forward() -> Any:
        return flash_attn_func(*inputs, causal=causal)

    runs = {
        name: ours(inputs, gradient, forward, family, backward=backward) for name, family in (("ours", 0), ("fa2", 2))
    }
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("torch flash", SDPBackend.FLASH_ATTENTION)):
        run = rival(inputs, gradient, backend, causal=causal, grouped=problem["group"] > 1, backward=backward)
        if run is not None:
            runs[name] = run
    work = 4.0 * batch * heads * length * length * dim * (0.5 if causal else 1.0)
    return runs, work * (2.5 if backward else 1.0)


def mixed(problem: dict[str, Any]) -> tuple[dict[str, Run], float]:
    """Packed sequences of very different lengths; cuDNN and torch's flash have no packed entry of torch's to time."""
    heads, dim = problem["heads"], problem["dim"]
    backward, causal = problem["kind"] == "bwd", problem["mask"] == "causal"
    lengths = [6144, 4096, 2048, 1536, 1024, 768, 512, 256]
    starts = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")
    options = {"device": "cuda", "dtype": torch.bfloat16}
    inputs = [
        torch.randn(sum(lengths), n, dim, **options).requires_grad_(backward)
        for n in (heads, heads // problem["group"], heads // problem["group"])
    ]
    gradient = torch.randn(sum(lengths), heads, dim, **options)

    def forward() -> Any:
        return flash_attn_varlen_func(*inputs, starts, starts, max(lengths), max(lengths), causal=causal)

    runs = {
        name: ours(inputs, gradient, forward, family, backward=backward) for name, family in (("ours", 0), ("fa2", 2))
    }
    work = sum(4.0 * heads * n * n * dim * (0.5 if causal else 1.0) for n in lengths)
    return runs, work * (2.5 if backward else 1.0)


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    first, step = options.share
    for problem in list(problems(options.lengths))[first::step]:
        with torch.set_grad_enabled(problem["kind"] == "bwd"):
            runs, work = dense(problem) if problem["length"] else mixed(problem)
            times = milliseconds(runs)
        yield problem | {name: round(work / times[name] / 1e9, 1) for name in RIVALS if name in times}
        del runs


def product() -> float:
    """TFLOP/s of a matrix product, the chip's own limit."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    return 2 * 8192**3 / milliseconds({"product": lambda: a @ b})["product"] / 1e9


def mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def name_of(row: dict[str, Any]) -> str:
    kind = f"{row['batch']} x {row['length']}" if int(row["length"]) else "varlen mix"
    return f"{row['kind']} d{row['dim']} {row['mask']} {kind}, {row['heads']} heads, group {row['group']}"


def report(rows: list[dict[str, Any]], limit: float) -> None:
    """Geometric means, the lowest ratios, and every point under 0.97 of the best."""
    print(
        f"\n{len(rows)} problems, {torch.cuda.get_device_name()}, torch {torch.__version__}, matrix product {limit:.0f} TFLOP/s"
    )
    print(f"{'pass':5} {'rival':12} {'mean':>6} {'lowest':>7} {'points':>7}")
    for which, against in itertools.product(("fwd", "bwd"), RIVALS[1:]):
        ratios = {name_of(r): r["ours"] / r[against] for r in rows if r["kind"] == which and r.get(against)}
        if ratios:
            print(
                f"{which:5} {against:12} {mean(list(ratios.values())):6.3f} {min(ratios.values()):7.3f} {len(ratios):7}"
            )
    for which, length in itertools.product(("fwd", "bwd"), sorted({int(r["length"]) for r in rows})):
        here = [r for r in rows if r["kind"] == which and int(r["length"]) == length]
        parts = [
            f"{against} {mean([r['ours'] / r[against] for r in here if r.get(against)]):.3f}"
            for against in RIVALS[1:]
            if any(r.get(against) for r in here)
        ]
        best = max(r["ours"] for r in here)
        print(
            f"{which} {length or 'varlen':>6}: of {', '.join(parts)}; at best {best:.0f} TFLOP/s, {best / limit:.2f} of the product"
        )
    behind = sorted(
        (r["ours"] / max(r[n] for n in RIVALS[1:] if r.get(n)), name_of(r), r)
        for r in rows
        if any(r.get(n) for n in RIVALS[1:])
    )
    under = [one for one in behind if one[0] < 0.97]  # noqa: PLR2004
    print(f"under 0.97 of the best: {len(under)}; the lowest:")
    for ratio, name, row in under[:40]:
        print(f"  {ratio:.3f} {name}: {', '.join(f'{n} {row[n]}' for n in RIVALS if row.get(n))}")


def shares(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What a process for each GPU measures."""
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    command = [sys.executable, __file__, "--lengths", ",".join(map(str, options.lengths))]
    running = [
        subprocess.Popen(
            [*command, "--share", str(i), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": visible[i]},
        )
        for i in range(count)
    ]
    for process in running:
        text, _ = process.communicate()
        assert process.returncode == 0, f"a process ended with {process.returncode}"
        for row in csv.DictReader(text.splitlines()):
            yield row | {name: float(row[name]) for name in RIVALS if row[name]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=lambda text: tuple(map(int, text.split(","))), default=LENGTHS)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--share", type=int, nargs=2)
    options = parser.parse_args()
    if options.share:
        writer = csv.DictWriter(sys.stdout, (*SHAPE, *RIVALS))
        writer.writeheader()
        for row in measured(options):
            writer.writerow(row)
            sys.stdout.flush()
        return
    began = time.monotonic()
    rows = list(shares(options))
    for row in rows:
        print(f"{name_of(row):58} " + "  ".join(f"{name} {row[name]}" for name in RIVALS if row[name]))
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, (*SHAPE, *RIVALS))
            writer.writeheader()
            writer.writerows(rows)
    report(rows, product())
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
