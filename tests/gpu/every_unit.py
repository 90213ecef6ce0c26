"""A small call of every kernel of family fa4, by itself or under compute-sanitizer. It needs numpy and flashdepot, and no torch.

Usage: python tests/gpu/every_unit.py LIBRARY                      each unit once, and whether answers are finite
       python tests/gpu/every_unit.py LIBRARY --tools memcheck racecheck initcheck synccheck --logs DIR

LIBRARY is a libflashattention.so, or "wheel" for that of the installed flash_attn. How to read what the tools say of
these kernels: benchmarks/fa4.md.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from flashdepot.kernels.fa4.variants import Variant, backward_variants, forward_variants
from support.fa_abi import BackwardArgs, Dtype, Family, Flag, ForwardArgs, Library, OneFamily, Status, Tensor

PAGE = 256
BATCH, LENGTH_Q, LENGTH_K = 2, 2400, 300
"""More queries than sequences have that half tiles run, and fewer keys than kernels for long ones want."""
SANITIZER = "/usr/local/cuda/bin/compute-sanitizer"


def every_unit() -> Iterator[Variant]:
    """Those that are a pass of attention by themselves."""
    return (v for v in (*forward_variants(), *backward_variants()) if v.is_pass or v.kernel == "whole")


class Gpu:
    """Device memory of the driver's own, each buffer an allocation of exactly its size."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.buffers: list[ctypes.c_uint64] = []
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.cuda, name)(*arguments)
        assert status == 0, f"{name} answered {status}"

    def empty(self, count: int) -> int:
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(max(count, 16)))
        self.buffers.append(at)
        return at.value

    def holding(self, values: Any) -> int:
        at = self.empty(values.nbytes)
        self.call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(at), ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        )
        return at

    def read(self, at: int, like: Any) -> Any:
        values = np.empty_like(like)
        self.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(at), ctypes.c_size_t(values.nbytes)
        )
        return values

    def free(self) -> None:
        for at in self.buffers:
            self.call("cuMemFree_v2", at)
        self.buffers.clear()


class UnitCall:
    """A problem that a unit runs."""

    def __init__(self, unit: Variant, gpu: Gpu, library: Library) -> None:
        self.unit, self.gpu, self.library = unit, gpu, library
        self.packed, self.paged = unit.layout.endswith("packed"), unit.layout.startswith("paged")
        together = unit.kernel == "fwd" and unit.several_heads
        self.heads_q, self.heads_k = (4, 2) if unit.several_heads or unit.kernel == "fwd" else (2, 2)
        self.heads_q *= 4 if together else 1
        shortest = unit.shortest
        length_q, length_k = (150 if together else LENGTH_Q), LENGTH_K
        if unit.kernel == "whole":
            length_q, length_k = 60, unit.tile_n
        elif unit.half:  # of a backward pass over 60 keys one tile would have them all
            length_q, length_k = 60, 60 if unit.kernel == "fwd" else LENGTH_K
        self.length = {"q": shortest + length_q, "k": shortest + length_k}
        self.lengths = {"q": (length_q, 37), "k": (length_k, 17)}
        if self.packed:
            self.length["k"] += shortest
            self.lengths = {"q": (self.length["q"], 37), "k": (self.length["k"], 17)}
        self.written: list[tuple[str, int, Any]] = []

    def values(self, rows: int, heads: int, dim: int) -> Any:
        """16-bit numbers of about 1."""
        source = np.random.default_rng(rows * heads)
        numbers = source.standard_normal(rows * heads * dim).astype(np.float32)
        if self.unit.dtype == "fp16":
            return numbers.astype(np.float16).view(np.uint16)
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)

    def rows(self, of: str) -> int:
        if self.paged and of == "k":
            return 2 * BATCH * PAGE
        if self.packed:
            return sum(self.lengths[of])
        return BATCH * self.length[of]

    def tensor(self, of: str, name: str | None = None, *, dim: int = 0) -> Tensor:
        """Values, or (with a name) a buffer that the call writes."""
        heads, dim = self.heads_q if of == "q" else self.heads_k, dim or self.unit.head_dim
        values = self.values(self.rows(of), heads, dim)
        at = self.gpu.empty(values.nbytes) if name else self.gpu.holding(values)
        if name:
            self.written.append((name, at, values))
        row, pages = heads * dim, self.paged and of == "k"
        length = PAGE if pages else self.length[of]
        return Tensor(at, 0 if self.packed and not pages else length * row, row, dim)

    def common(self, kind: Any) -> Any:
        unit = self.unit
        args = kind(size=ctypes.sizeof(kind), dtype=Dtype[unit.dtype.upper()], batch=BATCH, head_dim=unit.head_dim)
        args.seqlen_q, args.seqlen_k = self.length["q"], 2 * PAGE if self.paged else self.length["k"]
        args.heads_q, args.heads_k = self.heads_q, self.heads_k
        if unit.mask == "causal":
            args.flags = Flag.CAUSAL
        elif unit.mask == "local":
            args.flags, args.window_left, args.window_right = Flag.WINDOW_LEFT | Flag.WINDOW_RIGHT, 90, 20
        args.softcap = 15.0 if unit.softcap else 0.0
        if self.packed:
            args.total_q, args.total_k = self.rows("q"), 0 if self.paged else self.rows("k")
            for of in ("q", "k"):
                starts = np.array([0, *itertools.accumulate(self.lengths[of])], dtype=np.int32)
                setattr(args, f"cu_seqlens_{of}", self.gpu.holding(starts))
        return args

    def forward(self) -> ForwardArgs:
        args = self.common(ForwardArgs)
        args.head_dim_v = self.unit.head_dim_v
        if self.unit.layout in ("used", "paged"):
            args.cache_seqlens = self.gpu.holding(np.array(self.lengths["k"], dtype=np.int32))
        if self.paged:
            args.block_table, args.page_size = self.gpu.holding(np.array([3, 0, 2, 1], dtype=np.int32)), PAGE
            args.block_table_stride = 2
        args.q, args.k, args.v = self.tensor("q"), self.tensor("k"), self.tensor("k", dim=self.unit.head_dim_v)
        args.o = self.tensor("q", "o", dim=self.unit.head_dim_v)
        args.lse = self.gpu.empty(4 * self.heads_q * self.rows("q"))
        answer, need, _ = self.library.fwd_workspace(args)
        assert answer.status is Status.OK, answer
        args.workspace, args.workspace_bytes = self.gpu.empty(need) if need else None, need
        return args

    def backward(self, forward: ForwardArgs) -> BackwardArgs:
        args = self.common(BackwardArgs)
        for name in ("q", "k", "v", "o", "lse"):
            setattr(args, name, getattr(forward, name))
        args.d_o = self.tensor("q")
        args.dq, args.dk, args.dv = self.tensor("q", "dq"), self.tensor("k", "dk"), self.tensor("k", "dv")
        padded = self.rows("q") + 128 * BATCH if self.packed else BATCH * -(-self.length["q"] // 128) * 128
        args.softmax_d = self.gpu.empty(4 * self.heads_q * padded)
        answer, need = self.library.bwd_workspace(args)
        assert answer.status is Status.OK, answer
        args.workspace, args.workspace_bytes = self.gpu.empty(need) if need else None, need
        return args

    def run(self) -> str:
        """Launch, wait, and say which answers are not finite."""
        forward = self.forward()
        answer = self.library.fwd(forward)
        assert answer.status is Status.OK, answer
        if self.unit.kernel != "fwd":
            answer = self.library.bwd(self.backward(forward))
            assert answer.status is Status.OK, answer
        self.gpu.call("cuCtxSynchronize")
        mask = 0x7C00 if self.unit.dtype == "fp16" else 0x7F80
        bad = [name for name, at, like in self.written if ((self.gpu.read(at, like) & mask) == mask).any()]
        self.gpu.free()
        return f"not finite: {', '.join(bad)}" if bad else "ok"


def library_path(named: str) -> Path:
    if named != "wheel":
        return Path(named)
    spec = importlib.util.find_spec("flash_attn_2_cuda")
    assert spec is not None, "no flash_attn wheel of flashdepot is installed here"
    assert spec.origin is not None, "no flash_attn wheel of flashdepot is installed here"
    return Path(spec.origin).parent / "lib" / "libflashattention.so.1"


def chosen_units(options: argparse.Namespace) -> list[Variant]:
    """The units to run: all that the library has, those of some names, or a sample of them."""
    there = library_path(options.library).read_bytes()
    units = [unit for unit in every_unit() if f"\0{unit.name}\0".encode() in there]
    units = [unit for unit in units if re.search(options.only, unit.name)]
    random.Random(1).shuffle(units)  # so that shares cost about the same
    return units[: options.sample or None]


def run(options: argparse.Namespace) -> int:
    """The units of a share, a line each."""
    first, step = options.share
    library, gpu = OneFamily(library_path(options.library), Family.FA4), Gpu()
    bad = 0
    for unit in chosen_units(options)[first::step]:
        outcome = outcome_of(unit, gpu, library)
        bad += outcome != "ok"
        print(f"UNIT {unit.name} {outcome}", flush=True)
    return bad > 0


def outcome_of(unit: Variant, gpu: Gpu, library: Library) -> str:
    """What came of a unit: "ok", or what was wrong; the next one runs all the same."""
    try:
        return UnitCall(unit, gpu, library).run()
    except AssertionError as error:
        gpu.free()
        return f"failed: {error}"


def ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; one that takes longer is ended."""
    try:
        process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # this program's own child, and what it started
        process.wait()
        return False
    return True


def check(options: argparse.Namespace, tool: str) -> bool:
    """Every unit under a tool, in several processes; print a line of the table."""
    sanitizer = shutil.which("compute-sanitizer") or SANITIZER
    logs = [Path(options.logs) / f"{tool}-{i}.txt" for i in range(options.processes)]
    command = [sanitizer, "--tool", tool, "--print-limit", str(options.print_limit)]
    program = [sys.executable, __file__, options.library, "--only", options.only, "--sample", str(options.sample)]
    program.append("--share")
    began = time.monotonic()
    running = []
    for i, log in enumerate(logs):
        with log.open("w") as out:
            whole = (
                [*command, *program, str(i), str(options.processes)]
                if tool != "none"
                else [*program, str(i), str(options.processes)]
            )
            running.append(subprocess.Popen(whole, stdout=out, stderr=subprocess.STDOUT, start_new_session=True))
    late = sum(not ends(process, options.limit - (time.monotonic() - began)) for process in running)
    text = "\n".join(log.read_text(errors="replace") for log in logs)
    ran = re.findall(r"^UNIT (\S+) (.*)$", text, re.MULTILINE)
    errors = sum(int(n) for n in re.findall(r"ERROR SUMMARY: (\d+) error", text))
    hazards = sum(int(n) for n in re.findall(r"RACECHECK SUMMARY: (\d+) hazard", text))
    summaries = len(re.findall(r"(?:ERROR|RACECHECK) SUMMARY", text))
    not_ok = [f"{name}: {outcome}" for name, outcome in ran if outcome != "ok"]
    wanted = {unit.name for unit in chosen_units(options)}
    missing = sorted(wanted - {name for name, _ in ran})
    print(
        f"{tool:10} units {len(ran):4} of {len(wanted)}  errors {errors:5}  hazards {hazards:5}  "
        f"summaries {summaries} of {options.processes}  cut off {late}  {time.monotonic() - began:5.0f} s"
    )
    for line in not_ok[:10]:
        print(f"    {line}")
    if missing:
        print(f"    not run: {len(missing)}, such as {', '.join(missing[:5])}")
    complaints = re.findall(
        r"^=+ ((?:Error|Warning|Invalid|Uninitialized|Barrier|Program hit|Potential).*)$", text, re.MULTILINE
    )
    for line in sorted(set(complaints))[:12]:
        print(f"    {complaints.count(line)} x {line[:150]}")
    return not (errors or hazards or not_ok or missing)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--tools", nargs="+", default=[])
    parser.add_argument("--logs", default=".")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--limit", type=float, default=140, help="seconds for a tool")
    parser.add_argument("--only", default="", help="a pattern: the units of such names; '^(?!bwd_d96)' is all others")
    parser.add_argument("--sample", type=int, default=0, help="only so many units; 0: all")
    parser.add_argument("--print-limit", type=int, default=30, help="complaints that a tool prints in a process")
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1))
    options = parser.parse_args()
    if not options.tools:
        return run(options)
    outcomes = [check(options, tool) for tool in options.tools]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
