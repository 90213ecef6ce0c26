"""Kernel speed of the shared against the native front end, on this machine's GPU, next to torch's own flash attention.

Usage: python benchmarks/front_end_speed.py SHARED_LIBRARY_FOLDER NATIVE_LIBRARY_FOLDER --out FILE.json [--backward]

Both libraries run every problem in turn, many times over; the figure is the ratio of medians. Needs torch with CUDA.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "native"))
from fa_abi import BackwardArgs, Flag, ForwardArgs, Library, Status, backward_args, forward_args, packed

ROUNDS = 40
CALLS = 10
WARMUPS = 3


def main() -> None:
    """Time the grid and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("native", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backward", action="store_true", help="the backward pass, without torch's")
    arguments = parser.parse_args()
    libraries = {
        name: Library(folder / "lib/shared/libflashattention.so")
        for name, folder in (("shared", arguments.shared), ("native", arguments.native))
    }
    rows = [
        measure(libraries, head_dim, seqlen, causal=causal, backward=arguments.backward)
        for head_dim in (64, 128)
        for seqlen in (1024, 4096, 16384)
        for causal in (False, True)
    ]
    result = {
        "benchmark": f"front-end speed, {'backward' if arguments.backward else 'forward'}, bf16",
        "date": datetime.datetime.now(tz=datetime.timezone.utc).isoformat(timespec="minutes"),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "command": "python " + " ".join(sys.argv),
        "rows": rows,
        "largest_difference": max(abs(row["native_over_shared"] - 1) for row in rows),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def measure(
    libraries: dict[str, Library], head_dim: int, seqlen: int, *, causal: bool, backward: bool
) -> dict[str, Any]:
    """Median milliseconds of each on one problem of 16 heads and about 16k tokens, and TFLOP/s."""
    batch, heads = max(1, 16384 // seqlen), 2048 // head_dim
    generator = torch.Generator(device="cuda").manual_seed(0)
    shape = (batch, seqlen, heads, head_dim)
    q, k, v = (torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    o = torch.empty_like(q)
    lse = torch.empty((batch, heads, seqlen), device="cuda")
    stream = torch.cuda.current_stream()

    def prepare(library: Library) -> ForwardArgs:
        args = forward_args(
            batch=batch, seqlen_q=seqlen, seqlen_k=seqlen, heads_q=heads, heads_k=heads, head_dim=head_dim
        )
        args.flags = Flag.CAUSAL if causal else 0
        args.stream, args.lse, args.num_splits = stream.cuda_stream, lse.data_ptr(), 1
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o)):
            setattr(args, name, packed(tensor.data_ptr(), seqlen, heads, head_dim))
        answer = library.fwd(args)
        assert answer.status is Status.OK, answer
        return args

    kept: list[torch.Tensor] = []

    def prepare_backward(library: Library) -> BackwardArgs:
        prepare(library)  # the output and its lse
        args = backward_args(
            batch=batch, seqlen_q=seqlen, seqlen_k=seqlen, heads_q=heads, heads_k=heads, head_dim=head_dim
        )
        args.flags = Flag.CAUSAL if causal else 0
        softmax_d = torch.empty((batch, heads, -(-seqlen // 128) * 128), device="cuda")
        gradients = [torch.empty_like(q) for _ in range(3)]
        args.stream, args.lse, args.softmax_d = stream.cuda_stream, lse.data_ptr(), softmax_d.data_ptr()
        names = ("q", "k", "v", "o", "d_o", "dq", "dk", "dv")
        for name, tensor in zip(names, (q, k, v, o, torch.ones_like(q) * 0.1, *gradients), strict=True):
            kept.append(tensor)
            setattr(args, name, packed(tensor.data_ptr(), seqlen, heads, head_dim))
        answer, count = library.bwd_workspace(args)
        assert answer.status is Status.OK, answer
        workspace = torch.empty(count, dtype=torch.uint8, device="cuda")
        kept.extend([softmax_d, workspace])
        args.workspace, args.workspace_bytes = workspace.data_ptr(), count
        answer = library.bwd(args)
        assert answer.status is Status.OK, answer
        return args

    if backward:
        backwards = {name: prepare_backward(library) for name, library in libraries.items()}
        ours = {name: lambda n=name: libraries[n].c.fa_bwd(backwards[n]) for name in libraries}
    else:
        args = {name: prepare(library) for name, library in libraries.items()}
        ours = {name: lambda n=name: libraries[n].c.fa_fwd(args[n]) for name in libraries}
    transposed = [t.transpose(1, 2) for t in (q, k, v)]

    def rival() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(*transposed, is_causal=causal)

    runs = ours if backward else {**ours, "torch flash SDPA": rival}
    times: dict[str, list[float]] = {name: [] for name in runs}
    calls = CALLS // 3 if backward else CALLS
    for turn in range(WARMUPS + ROUNDS):
        for name, run in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            for _ in range(calls):
                run()
            end.record(stream)
            end.synchronize()
            if turn >= WARMUPS:
                times[name].append(begin.elapsed_time(end) / calls)
    medians = {name: statistics.median(t) for name, t in times.items()}
    flop = (10 if backward else 4) * batch * heads * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    row = {
        "head_dim": head_dim,
        "seqlen": seqlen,
        "causal": causal,
        "tflops": {name: round(flop / ms / 1e9, 1) for name, ms in medians.items()},
        "native_over_shared": round(medians["native"] / medians["shared"], 4),
    }
    if not backward:
        row["torch_over_shared"] = round(medians["torch flash SDPA"] / medians["shared"], 3)
    return row


if __name__ == "__main__":
    main()
