"""Random problems in the words that only family fa3 has, through the C ABI, against float64.

Usage: python tests/gpu/random_fa3.py LIBRARY [--seconds 60] [--seed 1] [--only INDEX] [--head-dims 64,128,256]

LIBRARY is libflashattention.so. FP8 with factors of q, k and v, absorbed latent attention (qv, and head dim 512 of v), chunks,
queries in use of each sequence; dense, packed, caches, pages, keys that are appended, split keys, sinks. The inputs of the
reference are the very values of the eight bits, so what differs is the rounding of the weights to them, at most 2^-4 of each and
independent of the others: the allowed error of o, and of its mean square, is that.
``--leave-out v_descale`` (or q_descale, chunk, qv) leaves that out of the reference, to see that the comparison can fail.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from random_models import NAN, sized, tensor_of

from support.fa_abi import Answer, Dtype, Family, Flag, ForwardArgs, Library, Status

KINDS = ("dense", "packed", "cache", "paged", "paged_packed", "appended")
PAGES = (1, 16, 64, 128, 160, 224, 256)
SPARE = 5
"""Rows of no sequence in a packed batch."""


MOST = 6 << 30
"""Bytes of the GPU that may stay reserved: several of these run at once."""


class Problem:
    """What is drawn from a seed and an index."""

    def __init__(self, seed: int, index: int, options: argparse.Namespace) -> None:
        chance = random.Random(f"{seed}:{index}")
        self.index = index
        self.kind = chance.choice(options.kinds)
        self.eight = chance.choice(options.types) == "e4m3"
        self.qv = not self.eight and chance.random() < 0.7
        exact = chance.choice(options.head_dims)
        self.dim = 64 if not self.eight else chance.choice((exact, exact, max(16, exact - 16 * chance.randrange(4))))
        self.dim_v = self.dim if self.eight else 512
        self.heads_k = chance.choice((1, 2, 3))
        self.heads = self.heads_k * chance.choice((1, 1, 2, 4, 5, 16))
        self.batch = chance.choice((1, 2, 3, 4, 9))
        longest = chance.choice((3, 40, 130, 300, 520, 1500))
        paged = self.kind.startswith("paged")
        self.page = chance.choice(PAGES) if paged else 0
        self.capacity = -(-longest // self.page) * self.page if paged else longest
        self.sq = chance.choice((1, 1, 7, longest, longest + 9))
        self.new = min(chance.choice((1, 3, 70)), self.capacity) if self.kind == "appended" else 0
        if self.new:
            self.sq = min(self.sq, self.capacity)
        each = self.kind.endswith("packed")
        self.of_q = [
            chance.choice((self.sq, chance.randrange(self.sq + 1))) if each else self.sq for _ in range(self.batch)
        ]
        self.unused_q = [chance.randrange(n + 1) if each else 0 for n in self.of_q] if chance.random() < 0.4 else None
        full = self.kind == "dense"
        room = self.capacity - self.new
        self.of_k = [
            self.capacity if full else chance.choice((0, 1, room, chance.randrange(room + 1)))
            for _ in range(self.batch)
        ]
        self.of_k = [min(n, room) + self.new for n in self.of_k] if not full else self.of_k
        self.causal = chance.random() < 0.4
        self.left = chance.randrange(longest + 5) if chance.random() < 0.25 else None
        self.right = chance.randrange(longest + 5) if not self.causal and chance.random() < 0.2 else None
        self.chunk = chance.randrange(1, longest + 5) if chance.random() < 0.2 else 0
        self.sink = chance.random() < 0.3 and not (each and self.unused_q)
        self.negative = chance.random() < 0.3
        self.factors = [name for name in ("q", "k", "v") if self.eight and chance.random() < 0.7]
        self.splits = chance.choice((0, 0, 1, 2, 3, 7)) if options.splits else 1
        self.scale = chance.choice(((self.dim + (self.dim_v if self.qv else 0)) ** -0.5, 0.11))

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items())


class Case:
    def __init__(self, p: Problem) -> None:
        self.p = p
        source = torch.Generator(device="cuda").manual_seed(p.index)
        self.type = torch.float8_e4m3fn if p.eight else torch.bfloat16

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", generator=source).to(self.type)

        self.q, self.qv = normal(p.batch, p.sq, p.heads, p.dim), normal(p.batch, p.sq, p.heads, p.dim_v)
        self.k, self.v = normal(p.batch, p.capacity, p.heads_k, p.dim), normal(p.batch, p.capacity, p.heads_k, p.dim_v)
        self.sink = torch.randn(p.heads, device="cuda", generator=source) * 2 + 1
        factors = torch.rand(3, p.batch, p.heads_k, device="cuda", generator=source) * 1.5 + 0.25
        self.factors = dict(zip(("q", "k", "v"), factors, strict=True))
        used = [n - m for n, m in zip(p.of_q, p.unused_q or [0] * p.batch, strict=True)]
        of_q, self.of_k = (torch.tensor(n, dtype=torch.int32, device="cuda") for n in (p.of_q, p.of_k))
        self.used_q = torch.tensor(used, dtype=torch.int32, device="cuda")
        self.rows_q = torch.arange(p.sq, device="cuda")[None] < of_q[:, None]
        self.mask_q = torch.arange(p.sq, device="cuda")[None] < self.used_q[:, None]
        self.mask_k = torch.arange(p.capacity, device="cuda")[None] < self.of_k[:, None]
        self.of_q = of_q
        self.keep: list[torch.Tensor] = []

    def kept(self, t: torch.Tensor) -> torch.Tensor:
        self.keep.append(t)
        return t

    def ends(self, lengths: torch.Tensor) -> int:
        return self.kept(torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)).data_ptr()

    def pack(self, padded: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = padded.view(torch.uint8 if padded.element_size() == 1 else torch.int16)[mask]
        return torch.cat([rows, rows.new_zeros((SPARE, *rows.shape[1:]))]).view(padded.dtype)

    def pool(self, padded: torch.Tensor) -> torch.Tensor:
        p = self.p
        pages = padded.new_zeros((p.batch * self.table.shape[1] + 3, p.page, *padded.shape[2:]))
        pages[self.table.flatten().long()] = padded.reshape(-1, p.page, *padded.shape[2:])
        return pages

    def forward(self, library: Library) -> Answer:
        p, args = self.p, sized(ForwardArgs)
        args.dtype, args.family = Dtype.E4M3 if p.eight else Dtype.BF16, Family.FA3
        args.out_dtype = Dtype.BF16
        args.batch, args.seqlen_q, args.seqlen_k = p.batch, p.sq, p.capacity
        args.heads_q, args.heads_k, args.head_dim, args.head_dim_v = p.heads, p.heads_k, p.dim, p.dim_v
        args.scale, args.num_splits, args.attention_chunk = p.scale, p.splits, p.chunk
        flags = Flag.CAUSAL if p.causal else 0
        if p.left is not None:
            flags, args.window_left = flags | Flag.WINDOW_LEFT, p.left
        if p.right is not None:
            flags, args.window_right = flags | Flag.WINDOW_RIGHT, p.right
        args.flags = flags | (Flag.EMPTY_LSE_NEG_INF if p.negative else 0)
        args.sink = self.sink.data_ptr() if p.sink else None
        args.stream = torch.cuda.current_stream().cuda_stream
        for name in p.factors:
            setattr(args, f"{name}_descale", self.factors[name].data_ptr())
        args.descale_batch_stride, args.descale_head_stride = p.heads_k, 1
        packed = p.kind.endswith("packed")
        q, k, v, qv = self.q, self.k, self.v, self.qv
        if packed:
            q, qv = self.pack(q, self.rows_q), self.pack(qv, self.rows_q)
            args.total_q, args.cu_seqlens_q, args.cu_seqlens_k = len(q), self.ends(self.of_q), self.ends(self.of_k)
            args.seqused_q = self.used_q.data_ptr() if p.unused_q else None
        if p.page:
            each = p.capacity // p.page
            order = torch.randperm(p.batch * each + 3, device="cuda")[: p.batch * each]
            self.table = order.view(p.batch, each).to(torch.int32).contiguous()
            k, v = self.pool(k), self.pool(v)
            args.block_table, args.block_table_stride = self.table.data_ptr(), each
            args.page_size = p.page
            if not packed:
                args.cache_seqlens = self.of_k.data_ptr()
        elif packed:
            k, v = self.pack(k, self.mask_k), self.pack(v, self.mask_k)
            args.total_k = len(k)
        elif p.kind == "cache":
            args.cache_seqlens = self.of_k.data_ptr()
        elif p.kind == "appended":
            before = self.of_k - p.new
            args.cache_seqlens, args.seqlen_new = self.kept(before).data_ptr(), p.new
            rows = (before[:, None] + torch.arange(p.new, device="cuda")[None]).long()
            at = torch.arange(p.batch, device="cuda")[:, None]
            raw = torch.uint8 if p.eight else torch.int16
            fresh = [self.kept(t.view(raw)[at, rows].contiguous().view(self.type)) for t in (k, v)]
            args.k_new, args.v_new = map(tensor_of, fresh)
            k, v = (t.view(raw).clone() for t in (k, v))
            k[at, rows], v[at, rows] = 1, 1
            k, v = k.view(self.type), v.view(self.type)
        self.k_after, self.v_after = k, v
        self.o = torch.full((*q.shape[:-1], p.dim_v), NAN, device="cuda", dtype=torch.bfloat16)
        self.lse = torch.full((p.heads, len(q)) if packed else (p.batch, p.heads, p.sq), NAN, device="cuda")
        args.q, args.o = tensor_of(q, packed=packed), tensor_of(self.o, packed=packed)
        args.k, args.v = (tensor_of(t, packed=packed and not p.page) for t in (k, v))
        if p.qv:
            args.qv = tensor_of(qv, packed=packed)
        args.lse = self.lse.data_ptr()
        self.keep += [q, k, v, qv]
        answer, needed, self.splits = library.fwd_workspace(args)
        if answer.status is not Status.OK:
            return answer
        memory = self.kept(torch.full((needed + 16,), 0xFF, dtype=torch.uint8, device="cuda"))
        args.workspace, args.workspace_bytes = (memory.data_ptr() if needed else None), needed
        return library.fwd(args)

    def exact(self, leave_out: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """o, how far the weights let it be off at most, and by its mean square, and lse."""
        p = self.p
        group = p.heads // p.heads_k

        def factor(name: str) -> torch.Tensor:
            if name not in p.factors or leave_out == f"{name}_descale":
                return torch.ones(p.batch, p.heads, 1, 1, device="cuda", dtype=torch.float64)
            return self.factors[name].double().repeat_interleave(group, 1)[:, :, None, None]

        q, qv = (t.double().transpose(1, 2) for t in (self.q, self.qv))
        k, v = (t.double().transpose(1, 2).repeat_interleave(group, 1) for t in (self.k, self.v))
        scores = q @ k.transpose(-1, -2)
        if p.qv and leave_out != "qv":
            scores = scores + qv @ v.transpose(-1, -2)
        scores = scores * p.scale * factor("q") * factor("k")
        row = torch.arange(p.sq, device="cuda")[None, :, None] + (self.of_k - self.used_q)[:, None, None]
        column = torch.arange(p.capacity, device="cuda")[None, None, :]
        hidden = ~(self.mask_q[:, :, None] & self.mask_k[:, None, :])
        if p.left is not None:
            hidden = hidden | (column < row - p.left)
        if p.causal or p.right is not None:
            hidden = hidden | (column > row + (p.right or 0))
        if p.chunk and leave_out != "chunk":
            hidden = hidden | (row.div(p.chunk, rounding_mode="floor") != column.div(p.chunk, rounding_mode="floor"))
        # Hopper's products of e4m3 keep about 14 bits of a sum, which 32 more terms join at a time (DeepSeek-V3's report, 3.3.2).
        size = q.abs() @ k.abs().transpose(-1, -2) * p.scale * factor("q") * factor("k")
        of_scores = size * (p.dim / 32 * 2**-14 if p.eight else 0.0)
        self.of_scores = of_scores.masked_fill(hidden[:, None], 0.0).amax(-1)
        scores = scores.masked_fill(hidden[:, None], float("-inf"))
        lse = torch.logsumexp(scores, -1)
        if p.sink:
            lse = torch.logaddexp(lse, self.sink.double()[None, :, None].expand_as(lse))
        seen = lse.isfinite()
        weights = torch.exp(scores - lse.masked_fill(~seen, 0.0)[..., None])
        values = v * factor("v")
        o = weights @ values
        part = 2**-4 if p.eight else 2**-8
        most = part * 1.2 * (weights @ values.abs()) + 2**-7 * o.abs() + 1e-4
        mean = part**2 / 3 * (weights**2 @ values**2) + 2**-16 * o**2 + 1e-8
        empty = float("-inf") if p.negative else float("inf")
        return o, most, mean, lse.masked_fill(~seen, empty)

    def padded(self, rows: torch.Tensor) -> torch.Tensor:
        whole = rows.new_zeros(*self.rows_q.shape, *rows.shape[1:])
        whole[self.rows_q] = rows[: len(rows) - SPARE]
        return whole

    def misses(self, leave_out: str) -> list[tuple[str, float]]:
        p = self.p
        o, most, mean, lse = self.exact(leave_out)
        got_o, got_lse = self.o.double(), self.lse.double()
        if self.lse.dim() == 2:
            got_o, got_lse = self.padded(got_o), self.padded(got_lse.t()).transpose(1, 2)
        inside = self.mask_q[:, None, :]
        error = (got_o.transpose(1, 2) - o).masked_fill(~inside[..., None], 0.0)
        worst = float((error.abs() / most).nan_to_num(nan=1e9).max())
        count = int(inside.sum()) * p.heads * p.dim_v
        square = float(
            (error**2).nan_to_num(nan=1e9).sum() / mean.masked_fill(~inside[..., None], 0.0).sum().clamp_min(1e-9)
        )
        infinite = lse.isinf()
        off = torch.where(infinite, torch.where(got_lse == lse, 0.0, NAN), (got_lse - lse).abs())
        of_lse = float(
            (off / (4e-3 + 4e-4 * lse.masked_fill(infinite, 0.0).abs() + self.of_scores))
            .masked_fill(~inside, 0.0)
            .nan_to_num(nan=1e9)
            .max()
        )
        self.share = {"o": worst, "square": square, "lse": of_lse}
        found = [("o", worst)] if worst > 1 else []
        found += [("square", square)] if count > 4000 and square > 2.5 else []
        found += [("lse", of_lse)] if of_lse > 1 else []
        if p.new:
            raw = torch.uint8 if p.eight else torch.int16
            same = all(
                bool((a.view(raw) == b.view(raw)).all()) for a, b in ((self.k_after, self.k), (self.v_after, self.v))
            )
            found += [] if same else [("cache", 1.0)]
        return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--head-dims", type=lambda text: tuple(map(int, text.split(","))), default=(64, 128, 256))
    parser.add_argument("--types", type=lambda text: tuple(text.split(",")), default=("e4m3", "bf16"))
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=KINDS)
    parser.add_argument("--splits", action="store_true")
    parser.add_argument("--leave-out", default="")
    options = parser.parse_args()
    library, end = Library(options.library), time.monotonic() + options.seconds
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    shares: dict[str, float] = {}
    missed = 0
    for index in [options.only] if options.only is not None else range(options.count):
        if time.monotonic() > end:
            break
        p = Problem(options.seed, index, options)
        case = Case(p)
        answer = case.forward(library)
        if answer.status is not Status.OK:
            refused[f"{answer.status.name}: {answer.text}"[:200]] += 1
            continue
        torch.cuda.synchronize()
        counts[f"{'e4m3' if p.eight else 'absorbed'} {p.kind}{' split' if case.splits > 1 else ''}"] += 1
        if found := case.misses(options.leave_out):
            missed += 1
            if missed <= 10:
                print(f"MISS {found} splits {case.splits} {p}", flush=True)
        if torch.cuda.memory_reserved() > MOST:
            torch.cuda.empty_cache()
        shares = {name: max(shares.get(name, 0.0), share) for name, share in case.share.items()}
    for name, count in sorted(counts.items()):
        print(f"{name:24} {count}")
    for reason, count in refused.most_common(8):
        print(f"refused {count}: {reason}")
    print("largest parts of the allowed error:", {name: round(share, 2) for name, share in shares.items()})
    left = f", {options.leave_out} left out of the reference" if options.leave_out else ""
    print(
        f"fa3: {sum(counts.values())} problems, seed {options.seed}: {sum(refused.values())} refused, {missed} missed{left}"
    )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
