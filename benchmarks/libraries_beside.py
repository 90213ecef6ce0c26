"""Times libraries next to each other in one process, the forward pass of bf16 with head dim 64, as `quick` has it.

    python benchmarks/libraries_beside.py FOLDER FOLDER [--calls 200] [--first 5]

A folder is one that `flashdepot get --out` wrote, such as one made with `--cuda 12.4` and one made with 13.0. They take
turns in every round. A figure is the median of the rounds, and behind it how many times as fast as the first folder's.

`--calls N` then measures what a call costs the CPU: N calls of a tiny problem, which the GPU ends sooner than the next
one is made, a library's after another's in every round.

`--first N` then times, in N fresh processes each whose CUDA context exists already, loading the library, its first
call and its second one; and torch's own FlashAttention-2, which NVIDIA's runtime loads lazily.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "native"))
from fa_abi import Dtype, Flag, ForwardArgs, Library, Status, packed

LENGTHS = (1024, 2048, 4096, 8192, 16384)
TOKENS, HEADS, DIM = 16384, 32, 64
ROUNDS, LONG_ENOUGH = 15, 10.0
CALL_ROUNDS = 60
TORCH = "torch"


class Problem:
    """Inputs and outputs of one call, the same memory for every library."""

    def __init__(self, length: int, *, causal: bool, tokens: int = TOKENS) -> None:
        batch = max(1, tokens // length)
        shape = (batch, length, HEADS, DIM)
        self.q, self.k, self.v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty((batch, HEADS, length), device="cuda")
        self.causal = causal
        self.args = ForwardArgs(
            size=ctypes.sizeof(ForwardArgs), dtype=Dtype.BF16, batch=batch, seqlen_q=length, seqlen_k=length,
            heads_q=HEADS, heads_k=HEADS, head_dim=DIM, num_splits=1, flags=Flag.CAUSAL if causal else 0,
        )  # fmt: skip
        for name in "qkvo":
            setattr(self.args, name, packed(getattr(self, name).data_ptr(), length, HEADS, DIM))
        self.args.lse = self.lse.data_ptr()
        self.args.stream = torch.cuda.current_stream().cuda_stream
        self.flops = 4 * batch * HEADS * length * length * DIM / (2 if causal else 1)

    def run(self, library: Library) -> None:
        """Enqueue the call."""
        answer = library.fwd(self.args)
        assert answer.status is Status.OK, answer


def load(folder: Path) -> Library:
    return Library((folder / "lib" / "shared" / "libflashattention.so").resolve())


def once(problem: Problem, library: Library, calls: int) -> float:
    """Milliseconds of a call."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        problem.run(library)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def beside(folders: list[Path]) -> None:
    libraries = {str(folder): load(folder) for folder in folders}
    for name, library in libraries.items():
        contents = library.contents()
        print(f"{name}: CUDA {contents.cuda}, upstream {contents.upstream}, SASS {contents.sass}")
    first = next(iter(libraries))
    print(f"{'mask':6} {'length':>6}  " + "  ".join(f"{name[-24:]:>24}" for name in libraries) + "  same bits")
    for causal in (False, True):
        for length in LENGTHS:
            problem = Problem(length, causal=causal)
            outputs = []
            for library in libraries.values():
                problem.run(library)
                outputs.append(problem.o.clone())
            calls = max(1, math.ceil(LONG_ENOUGH / once(problem, libraries[first], 3)))
            times: dict[str, list[float]] = {name: [] for name in libraries}
            for turn in range(ROUNDS):
                order = list(libraries) if turn % 2 == 0 else list(libraries)[::-1]
                for name in order:
                    times[name].append(once(problem, libraries[name], calls))
            cells = []
            for measured in times.values():
                speed = problem.flops / statistics.median(measured) * 1e-9
                ratio = statistics.median(a / b for a, b in zip(times[first], measured, strict=True))
                cells.append(f"{speed:9.1f} TFLOP/s {ratio:6.4f}")
            same = all(torch.equal(outputs[0], other) for other in outputs)
            print(f"{'causal' if causal else 'full':6} {length:6}  " + "  ".join(cells) + f"  {same}", flush=True)


def cost_of_calls(folders: list[Path], calls: int) -> None:
    """Print the CPU's and the wall clock's microseconds of a call, medians of rounds, and how they compare."""
    libraries = {str(folder): load(folder) for folder in folders}
    problem = Problem(128, causal=True, tokens=128)
    spent: dict[str, list[float]] = {name: [] for name in libraries}
    walls: dict[str, list[float]] = {name: [] for name in libraries}
    for library in libraries.values():
        problem.run(library)
    for turn in range(CALL_ROUNDS):
        for name in list(libraries) if turn % 2 == 0 else list(libraries)[::-1]:
            torch.cuda.synchronize()
            begin, wall = time.thread_time_ns(), time.perf_counter_ns()
            for _ in range(calls):
                problem.run(libraries[name])
            spent[name].append((time.thread_time_ns() - begin) / calls * 1e-3)
            walls[name].append((time.perf_counter_ns() - wall) / calls * 1e-3)
    print(f"\nCPU time of a call, {calls} calls in each of {CALL_ROUNDS} rounds; medians, and of the first folder's")
    first = next(iter(libraries))
    for name, found in spent.items():
        ratio = statistics.median(a / b for a, b in zip(found, spent[first], strict=True))
        print(
            f"{name[-40:]:40} {statistics.median(found):8.2f} us CPU  {statistics.median(walls[name]):8.2f} us  {ratio:6.4f}"
        )


def first_calls(what: str) -> dict[str, float]:
    """Milliseconds to load a library, of its first call and of its second, with the context there."""
    problem = Problem(1024, causal=True)
    torch.cuda.synchronize()
    found = {}
    marks = [time.perf_counter()]
    library = None if what == TORCH else load(Path(what))
    marks.append(time.perf_counter())
    for _ in range(2):
        if library is None:
            q, k, v = (one.transpose(1, 2) for one in (problem.q, problem.k, problem.v))
            torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)  # noqa: SLF001
        else:
            problem.run(library)
        torch.cuda.synchronize()
        marks.append(time.perf_counter())
    for name, begin, end in zip(("load", "first", "second"), marks, marks[1:], strict=False):
        found[name] = (end - begin) * 1e3
    return found


def in_fresh_processes(what: str, count: int, loading: str) -> None:
    runs = []
    for _ in range(count):
        command = [sys.executable, __file__, "--one", what]
        done = subprocess.run(
            command, env={**os.environ, "CUDA_MODULE_LOADING": loading}, capture_output=True, text=True, check=True
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    cells = "  ".join(f"{key} {statistics.median(run[key] for run in runs):8.2f} ms" for key in runs[0])
    print(f"{what:40} {loading:6} {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--calls", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        print(json.dumps(first_calls(words.one)))
        return
    beside(words.folders)
    if words.calls:
        cost_of_calls(words.folders, words.calls)
    if words.first:
        print("\nin a fresh process whose context exists; medians")
        for what in [*map(str, words.folders), TORCH]:
            for loading in ("LAZY", "EAGER"):
                in_fresh_processes(what, words.first, loading)


if __name__ == "__main__":
    main()
