"""Random problems in the words of today's models, through the C ABI, against float64.

Usage: python tests/gpu/random_models.py LIBRARY FAMILY [--seconds 60] [--seed 1] [--processes 4] [--only INDEX]

LIBRARY is libflashattention.so. Sinks and their gradient, gradients of lse, -inf for rows that see no key, head dims of v other than
those of q and k, pages of any size, packed queries over pages, split keys. What is beyond a sequence, and in pages of none,
is not a number, and so is every output before the call. The allowed error is that of rounding the terms to the type.
``--leave-out sink`` (or d_lse, pages) leaves that out of the reference, to see that the comparison can fail.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.fa_abi import Answer, BackwardArgs, Dtype, Family, Flag, ForwardArgs, Library, Status, Tensor

TYPES = {"bf16": (torch.bfloat16, Dtype.BF16), "fp16": (torch.float16, Dtype.FP16)}
KINDS = ("dense", "packed", "cache", "paged", "paged_packed")
PAGES = (1, 8, 16, 16, 32, 48, 64, 64, 128, 128, 256)
NAN = float("nan")
SPARE = 5
"""Rows of no sequence in a packed batch; with one query each they never make total_q the batch, which would promise one a sequence."""


def tensor_of(t: torch.Tensor, *, packed: bool = False) -> Tensor:
    """A tensor's address and strides."""
    batch, row, head = (0, *t.stride()[:2]) if packed else t.stride()[:3]
    return Tensor(t.data_ptr(), batch, row, head, 0, 0)


def sized(struct: type[Any]) -> Any:
    made = struct()
    made.size = ctypes.sizeof(struct)
    return made


class Problem:
    """What is drawn from a seed and an index."""

    def __init__(self, seed: int, index: int, options: argparse.Namespace) -> None:
        chance = random.Random(f"{seed}:{index}")
        self.index, self.leave_out, self.forward_only = index, options.leave_out, options.forward_only
        self.kind = chance.choice(options.kinds)
        self.dtype, self.dtype_number = TYPES[chance.choice(options.dtypes)]
        most = max(options.head_dims)
        exact = chance.choice(options.head_dims)
        self.dim, self.dim_v = chance.choice(
            (
                (exact, exact),
                (exact, chance.randrange(8, most + 1, 8)),
                (chance.randrange(8, most + 1, 8), exact),
                (exact, exact),
            )
        )
        self.heads_k = chance.choice((1, 2, 3))
        self.heads = self.heads_k * chance.choice((1, 1, 2, 4, 5))
        self.batch = chance.choice((1, 2, 3, 4))
        longest = chance.choice((3, 40, 130, 300, 520))
        paged = self.kind.startswith("paged")
        self.page = chance.choice(PAGES) if paged else 0
        self.capacity = -(-longest // self.page) * self.page if paged else longest
        self.sq = chance.choice((1, 1, 7, longest, longest + 9))
        each = self.kind.endswith("packed")
        self.of_q = [
            chance.choice((self.sq, chance.randrange(self.sq + 1))) if each else self.sq for _ in range(self.batch)
        ]
        full = self.kind == "dense" or chance.random() < 0.1
        self.of_k = [
            self.capacity if full else chance.choice((0, 1, self.capacity, chance.randrange(self.capacity + 1)))
            for _ in range(self.batch)
        ]
        self.lengths_given = self.kind != "dense" and not (full and chance.random() < 0.5)
        self.causal = chance.random() < 0.4
        self.left = chance.randrange(longest + 5) if chance.random() < 0.3 else None
        self.right = chance.randrange(longest + 5) if not self.causal and chance.random() < 0.2 else None
        self.sink = chance.random() < 0.7
        self.negative = chance.random() < 0.3
        self.with_d_lse = chance.random() < 0.5
        self.splits = chance.choice((0, 0, 1, 2, 3, 5)) if options.splits and not each else 0
        self.scale = chance.choice((self.dim**-0.5, 0.11, 0.3))

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items())


class Case:
    def __init__(self, p: Problem) -> None:
        self.p = p
        source = torch.Generator(device="cuda").manual_seed(p.index)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", generator=source).to(p.dtype)

        self.q, self.d_o = normal(p.batch, p.sq, p.heads, p.dim), normal(p.batch, p.sq, p.heads, p.dim_v)
        self.k, self.v = normal(p.batch, p.capacity, p.heads_k, p.dim), normal(p.batch, p.capacity, p.heads_k, p.dim_v)
        self.sink = torch.randn(p.heads, device="cuda", generator=source) * 2 + 1
        self.d_lse = torch.randn(p.batch, p.heads, p.sq, device="cuda", generator=source)
        self.of_q, self.of_k = (torch.tensor(n, dtype=torch.int32, device="cuda") for n in (p.of_q, p.of_k))
        self.mask_q = torch.arange(p.sq, device="cuda")[None] < self.of_q[:, None]
        self.mask_k = torch.arange(p.capacity, device="cuda")[None] < self.of_k[:, None]
        if p.page:
            each = p.capacity // p.page
            self.order = torch.randperm(p.batch * each + 3, device="cuda", generator=source)[: p.batch * each]
            self.table = self.order.view(p.batch, each).to(torch.int32).contiguous()
        self.keep: list[Any] = []

    def spoiled(self, padded: torch.Tensor) -> torch.Tensor:
        return padded.masked_fill(~self.mask_k[:, :, None, None], NAN)

    def paged(self, padded: torch.Tensor) -> torch.Tensor:
        p = self.p
        pool = padded.new_full((p.batch * (p.capacity // p.page) + 3, p.page, *padded.shape[2:]), NAN)
        pool[self.order] = self.spoiled(padded).reshape(-1, p.page, *padded.shape[2:])
        return pool

    def pack(self, padded: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = padded[mask]
        return torch.cat([rows, rows.new_full((SPARE, *rows.shape[1:]), NAN)])

    def kept(self, t: torch.Tensor) -> torch.Tensor:
        self.keep.append(t)
        return t

    def ends(self, lengths: torch.Tensor) -> torch.Tensor:
        return self.kept(torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)).to(torch.int32))

    def common(self, args: Any, family: int) -> None:
        p = self.p
        args.dtype, args.family = p.dtype_number, family
        args.batch, args.seqlen_q, args.seqlen_k = p.batch, p.sq, p.capacity
        args.heads_q, args.heads_k, args.head_dim, args.head_dim_v = p.heads, p.heads_k, p.dim, p.dim_v
        args.scale = p.scale
        flags = Flag.CAUSAL if p.causal else 0
        if p.left is not None:
            flags, args.window_left = flags | Flag.WINDOW_LEFT, p.left
        if p.right is not None:
            flags, args.window_right = flags | Flag.WINDOW_RIGHT, p.right
        args.flags = flags | (Flag.EMPTY_LSE_NEG_INF if p.negative else 0)
        args.sink = self.sink.data_ptr() if p.sink else None
        args.stream = torch.cuda.current_stream().cuda_stream

    def workspace(self, args: Any, bytes_needed: int) -> None:
        memory = self.kept(torch.full((bytes_needed + 16,), 0xFF, dtype=torch.uint8, device="cuda"))  # bf16 NaN
        args.workspace, args.workspace_bytes = (memory.data_ptr() if bytes_needed else None), bytes_needed

    def forward(self, library: Library, family: int) -> Answer:
        p = self.p
        args = sized(ForwardArgs)
        self.common(args, family)
        packed = p.kind.endswith("packed")
        if packed:
            self.tensors = [self.pack(self.q, self.mask_q)]
            args.total_q = len(self.tensors[0])
            args.cu_seqlens_q = self.ends(self.of_q).data_ptr()
            args.cu_seqlens_k = self.ends(self.of_k).data_ptr()
        else:
            self.tensors = [self.q]
        if p.page:
            self.tensors += [self.paged(self.k), self.paged(self.v)]
            args.block_table, args.block_table_stride = self.table.data_ptr(), self.table.stride(0)
            args.page_size = p.page
            if p.lengths_given:
                setattr(args, "seqused_k" if packed else "cache_seqlens", self.of_k.data_ptr())
                if packed:
                    args.cu_seqlens_k = self.ends(torch.full_like(self.of_k, p.capacity)).data_ptr()
        elif packed:
            self.tensors += [self.pack(self.k, self.mask_k), self.pack(self.v, self.mask_k)]
            args.total_k = len(self.tensors[1])
        else:
            self.tensors += [self.spoiled(self.k), self.spoiled(self.v)]
            args.cache_seqlens = self.of_k.data_ptr() if p.kind == "cache" else None
        if p.splits:
            args.num_splits = p.splits
        q, k, v = self.tensors
        self.o = q.new_full((*q.shape[:-1], p.dim_v), NAN)
        self.lse = torch.full((p.heads, len(q)) if packed else (p.batch, p.heads, p.sq), NAN, device="cuda")
        args.q, args.o = tensor_of(q, packed=packed), tensor_of(self.o, packed=packed)
        args.k, args.v = (tensor_of(t, packed=packed and not p.page) for t in (k, v))
        args.lse = self.lse.data_ptr()
        answer, needed, _ = library.fwd_workspace(args)
        if answer.status is not Status.OK:
            return answer
        self.workspace(args, needed)
        return library.fwd(args)

    def backward(self, library: Library, family: int) -> Answer:
        p = self.p
        packed = p.kind == "packed"
        args = sized(BackwardArgs)
        self.common(args, family)
        q, k, v = self.tensors
        d_o = self.pack(self.d_o, self.mask_q) if packed else self.d_o
        d_lse = self.d_lse
        if packed:
            args.total_q, args.total_k = len(q), len(k)
            args.cu_seqlens_q, args.cu_seqlens_k = self.ends(self.of_q).data_ptr(), self.ends(self.of_k).data_ptr()
            d_lse = torch.nn.functional.pad(self.d_lse.transpose(1, 2)[self.mask_q].t(), (0, SPARE)).contiguous()
        self.gradients = [torch.full_like(t, NAN) for t in (q, k, v)]
        self.d_sink = torch.full((p.heads,), NAN, device="cuda")
        rows = len(q) + 128 * p.batch if packed else p.batch * (-(-p.sq // 128) * 128)
        softmax_d = self.kept(torch.full((p.heads * rows,), NAN, device="cuda"))
        for name, t in zip(
            ("q", "k", "v", "o", "d_o", "dq", "dk", "dv"), (q, k, v, self.o, d_o, *self.gradients), strict=True
        ):
            setattr(args, name, tensor_of(t, packed=packed))
        args.lse, args.softmax_d = self.lse.data_ptr(), softmax_d.data_ptr()
        args.d_lse = self.kept(d_lse).data_ptr() if p.with_d_lse else None
        args.d_sink = self.d_sink.data_ptr() if p.sink else None
        answer, needed = library.bwd_workspace(args)
        if answer.status is not Status.OK:
            return answer
        self.workspace(args, needed)
        return library.bwd(args)

    def padded(self, rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if rows.dim() == 4:
            return rows
        whole = rows.new_zeros(*mask.shape, *rows.shape[1:])
        whole[mask] = rows[: len(rows) - SPARE]
        return whole

    def exact(self, *, gradients: bool) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Of each answer what it should be, and what an error may be."""
        p = self.p
        unit = torch.finfo(p.dtype).eps
        group = p.heads // p.heads_k

        def of_queries(t: torch.Tensor) -> torch.Tensor:
            return t.double().masked_fill(~self.mask_q[:, :, None, None], 0).transpose(1, 2)

        def of_keys(t: torch.Tensor) -> torch.Tensor:
            whole = t.double().masked_fill(~self.mask_k[:, :, None, None], 0).transpose(1, 2)
            if p.leave_out == "pages" and p.page:
                whole = whole.flip(2)
            return whole.repeat_interleave(group, 1)

        q, d_o, k, v = of_queries(self.q), of_queries(self.d_o), of_keys(self.k), of_keys(self.v)
        row = torch.arange(p.sq, device="cuda")[None, :, None] + (self.of_k - self.of_q)[:, None, None]
        column = torch.arange(p.capacity, device="cuda")[None, None, :]
        hidden = ~(self.mask_q[:, :, None] & self.mask_k[:, None, :])
        if p.left is not None:
            hidden = hidden | (column < row - p.left)
        if p.causal or p.right is not None:
            hidden = hidden | (column > row + (p.right or 0))
        scores = (q @ k.transpose(-1, -2) * p.scale).masked_fill(hidden[:, None], float("-inf"))
        lse = torch.logsumexp(scores, -1)
        if p.sink and p.leave_out != "sink":
            lse = torch.logaddexp(lse, self.sink.double()[None, :, None].expand_as(lse))
        seen = lse.isfinite()
        weights = torch.exp(scores - lse.masked_fill(~seen, 0.0)[..., None])
        o = weights @ v
        of_o = unit * (weights @ v.abs()) * 1.1 + 1.5 * unit * o.abs() + 1e-6
        empty = float("-inf") if p.negative else float("inf")
        answers = {
            "o": (o.transpose(1, 2), of_o.transpose(1, 2)),
            "lse": (lse.masked_fill(~seen, empty), 2e-4 + 2e-6 * lse.masked_fill(~seen, 0.0).abs()),
        }
        if not gradients:
            return answers
        d_lse = self.d_lse.double() if p.with_d_lse and p.leave_out != "d_lse" else torch.zeros_like(lse)
        d = (d_o * o).sum(-1) - d_lse.masked_fill(~seen, 0.0)
        of_d = unit * (d_o.abs() * (o.abs() + weights @ v.abs())).sum(-1) + 1e-5 * (1 + d.abs())
        d_p = d_o @ v.transpose(-1, -2)
        d_scores = weights * (d_p - d[..., None])
        of_d_scores = (
            unit * d_scores.abs() + weights * (of_d[..., None] + 1e-3 * unit * d_p.abs() + 1e-6) + 4e-4 * d_scores.abs()
        )
        fold = (p.batch, p.heads_k, group, p.capacity)
        d_q, d_k = d_scores @ k * p.scale, d_scores.transpose(-1, -2) @ q * p.scale
        d_v = weights.transpose(-1, -2) @ d_o
        of_q = of_d_scores @ k.abs() * p.scale + unit * d_q.abs() + 1e-5
        of_k = of_d_scores.transpose(-1, -2) @ q.abs() * p.scale + unit * d_k.abs() + 1e-5
        of_v = 2 * unit * (weights.transpose(-1, -2) @ d_o.abs()) + unit * d_v.abs() + 1e-5

        def keys(t: torch.Tensor) -> torch.Tensor:
            return t.reshape(*fold, -1).sum(2).transpose(1, 2)

        answers |= {
            "dq": (d_q.transpose(1, 2), of_q.transpose(1, 2)),
            "dk": (keys(d_k), keys(of_k)),
            "dv": (keys(d_v), keys(of_v)),
        }
        if p.sink:
            share = torch.exp(self.sink.double()[None, :, None] - lse).masked_fill(~(seen & self.mask_q[:, None]), 0.0)
            answers["d_sink"] = (-(share * d).sum((0, 2)), (share * of_d).sum((0, 2)) + 1e-4)
        return answers

    def answers(self, *, gradients: bool) -> dict[str, torch.Tensor]:
        found = {"o": self.padded(self.o, self.mask_q)}
        if self.lse.dim() == 2:
            found["lse"] = self.padded(self.lse.t().unsqueeze(-1), self.mask_q).squeeze(-1).transpose(1, 2)
        else:
            found["lse"] = self.lse
        if gradients:
            masks = (self.mask_q, self.mask_k, self.mask_k)
            found |= {n: self.padded(t, m) for n, t, m in zip(("dq", "dk", "dv"), self.gradients, masks, strict=True)}
            found["d_sink"] = self.d_sink
        return found

    def inside(self, name: str, right: torch.Tensor) -> torch.Tensor:
        if name == "d_sink":
            return torch.ones_like(right, dtype=torch.bool)
        if name == "lse":
            return self.mask_q[:, None].expand_as(right)
        return (self.mask_k if name in ("dk", "dv") else self.mask_q)[:, :, None, None].expand_as(right)


def judge(library: Library, family: int, p: Problem) -> dict[str, Any]:
    case = Case(p)
    words = [word for word, there in (("sink", p.sink), ("dv", p.dim != p.dim_v), ("splits", p.splits > 1)) if there]
    result: dict[str, Any] = {"index": p.index, "kind": p.kind, "words": words}
    gradients = p.kind in ("dense", "packed") and not p.forward_only
    answer = case.forward(library, family)
    if answer.status is Status.OK and gradients:
        answer = case.backward(library, family)
    if answer.status is not Status.OK:
        return result | {"refused": f"{answer.status.name}: {answer.text}"}
    torch.cuda.synchronize()
    got, misses, share = case.answers(gradients=gradients), [], {}
    for name, (right, allowed) in case.exact(gradients=gradients).items():
        inside = case.inside(name, right)
        infinite = right.isinf()
        error = torch.where(
            infinite, torch.where(got[name].double() == right, 0.0, NAN), (got[name].double() - right).abs()
        )
        part = (error / allowed).masked_fill(~inside, 0.0)
        worst = float(part.nan_to_num(nan=1e9, posinf=1e9).max()) if part.numel() else 0.0
        share[name] = worst
        if worst > 1:
            misses.append((name, worst))
    return result | {"misses": misses, "share": share}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("family", choices=("fa2", "fa4", "best"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--only", type=int)
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), metavar=("I", "N"))
    parser.add_argument("--head-dims", type=lambda text: tuple(map(int, text.split(","))), default=(64, 128))
    parser.add_argument("--dtypes", type=lambda text: tuple(text.split(",")), default=("bf16",))
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=KINDS)
    parser.add_argument("--splits", action="store_true")
    parser.add_argument("--forward-only", action="store_true")
    parser.add_argument("--leave-out", default="")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    family = {"fa2": Family.FA2, "fa4": Family.FA4, "best": 0}[options.family]
    first, step = options.share
    if options.only is not None or step > 1 or options.processes == 1:
        library, end = Library(options.library), time.monotonic() + options.seconds
        for index in [options.only] if options.only is not None else range(first, options.count, step):
            if time.monotonic() > end:
                break
            problem = Problem(options.seed, index, options)
            try:
                print(json.dumps(judge(library, family, problem)), flush=True)
            except Exception as error:  # noqa: BLE001  (a dead context: nothing more can be said)
                print(
                    json.dumps(
                        {
                            "index": index,
                            "kind": "died",
                            "words": [],
                            "misses": [(f"{error} {problem}"[:600], 1e9)],
                            "share": {},
                        }
                    ),
                    flush=True,
                )
                break
        return 0
    command = [sys.executable, *sys.argv, "--share"]
    running = [
        subprocess.Popen([*command, str(i), str(options.processes)], stdout=subprocess.PIPE, text=True)
        for i in range(options.processes)
    ]
    results = [
        json.loads(line)
        for process in running
        for line in process.communicate()[0].splitlines()
        if line.startswith("{")
    ]
    return report(options, results)


def report(options: argparse.Namespace, results: list[dict[str, Any]]) -> int:
    missed = [r for r in results if r.get("misses")]
    for r in missed[:12]:
        print(f"MISS {r['kind']} {r['words']} {r['misses']}: --seed {options.seed} --only {r['index']}")
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for r in results:
        by_kind[r["kind"]].update(
            ["all", *(["refused"] if "refused" in r else []), *(["missed"] if r.get("misses") else []), *r["words"]]
        )
    for kind, counts in sorted(by_kind.items()):
        print(f"{options.family} {kind:13} {dict(counts)}")
    for reason, count in Counter(r["refused"][:150] for r in results if "refused" in r).most_common(6):
        print(f"refused {count}: {reason}")
    shares: dict[str, float] = defaultdict(float)
    for r in results:
        for name, share in r.get("share", {}).items():
            shares[name] = max(shares[name], share)
    print(
        f"{options.family}: largest part of the allowed error: " + ", ".join(f"{n} {s:.2f}" for n, s in shares.items())
    )
    left = f" with {options.leave_out} left out of the reference" if options.leave_out else ""
    print(
        f"{options.family}{left}: {len(results)} problems, seed {options.seed}: {sum('refused' in r for r in results)} refused, {len(missed)} missed"
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
