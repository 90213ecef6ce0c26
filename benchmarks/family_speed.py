"""Times both families on this machine's GPU and writes the table by which calls are given to one of them.

Usage: python benchmarks/family_speed.py [TABLE]     where torch, a GPU and a wheel with both families are (--families all)

TABLE is src/flashdepot/families/fa4/speed.csv unless another is named. Rows of other architectures stay. A library is
built anew after the table has changed, its kernels are not.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from flash_attn import flash_attn_func
from flash_attn_2_cuda import library

from flashdepot.prove.speed import flop, milliseconds

TABLE = Path(__file__).parents[1] / "src/flashdepot/families/fa4/speed.csv"
COLUMNS = ("arch", "kernel", "head_dim", "mask", "batch", "seqlen", "heads_q", "heads_k", "fa4", "fa2")
FAMILIES = {"fa4": 4, "fa2": 2}
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


def runs(problem: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """The pass of a problem by each family."""
    batch, length, dim = problem["batch"], problem["seqlen"], problem["head_dim"]
    backward = problem["kernel"] == "bwd"

    def tensor(heads: int, *, grad: bool = backward) -> torch.Tensor:
        return torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    q, k, v = tensor(problem["heads_q"]), tensor(problem["heads_k"]), tensor(problem["heads_k"])
    g = tensor(problem["heads_q"], grad=False)
    mask = {"causal": problem["mask"] == "causal"}
    if problem["mask"] == "local":
        mask = {"window_size": (length // 4, 0)}

    def of(number: int) -> Callable[[], object]:
        library._family = number  # noqa: SLF001  (what FLASH_ATTENTION_FAMILY sets)
        out = flash_attn_func(q, k, v, **mask)

        def run() -> object:
            library._family = number  # noqa: SLF001
            if backward:
                return torch.autograd.grad(out, (q, k, v), g, retain_graph=True)
            return flash_attn_func(q, k, v, **mask)

        return run

    return {name: of(number) for name, number in FAMILIES.items()}


def measured(arch: int) -> Iterator[dict[str, Any]]:
    """A row for each problem; TFLOP/s of the backward pass count 2.5 forward passes."""
    for problem in problems():
        shape = (problem["batch"], problem["heads_q"], problem["seqlen"], problem["head_dim"])
        forward = flop(*shape, causal=problem["mask"] == "causal", backward=False)
        work = forward * (2.5 if problem["kernel"] == "bwd" else 1.0)
        with torch.set_grad_enabled(problem["kernel"] == "bwd"):
            times = milliseconds(runs(problem), rounds=5, calls=3)
        row = {"arch": arch, **problem, **{name: f"{work / ms / 1e9:.4g}" for name, ms in times.items()}}
        print(",".join(str(row[name]) for name in COLUMNS), flush=True)
        yield row


def main() -> None:
    """Measure, then write."""
    table = Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE
    major, minor = torch.cuda.get_device_capability()
    arch = major * 10 + minor
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    before = csv.DictReader(line for line in lines if not line.startswith("#"))
    others = [row for row in before if int(row["arch"]) != arch]
    rows = [*others, *measured(arch)]
    notes = [line for line in lines if line.startswith("#") and others]
    text = io.StringIO()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    print(*notes, f"# {arch}: {torch.cuda.get_device_name()}, {today}, TFLOP/s, bf16.", sep="\n", file=text)
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    table.write_text(text.getvalue().lstrip("\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
