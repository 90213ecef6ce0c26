"""Random calls of few queries over long keys, as a program makes them, against float64; in an environment with a flash_attn wheel.

Usage: python tests/gpu/random_decoding.py [--seconds 60] [--seed 1] [--count N]

Dense keys with strides of their own, caches with lengths, pages, sequences that are looked up, packed queries over pages and
packed keys; causal, windows, softcap; up to 8 rows of queries for each key head, and more in one of ten. What is behind the
last key of a sequence is not a number. One call in four is captured in a graph, between copies, and replayed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

KINDS = ("dense", "strided", "cache", "indexed", "paged", "packed", "packed over pages")
MOST_ELEMENTS = 1 << 24
"""Of the keys; scores are made in float64."""
NO_GRAPHS = bool(os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"))
"""Without its cache torch frees what a graph still has."""


@dataclass(frozen=True)
class Problem:
    """One call; left -1: no window."""

    kind: str
    half: bool
    head_dim: int
    heads_k: int
    group: int
    queries: int
    batch: int
    keys: int
    page: int
    causal: bool
    left: int
    softcap: float
    captured: bool
    seed: int


def draw(chance: random.Random) -> Problem:
    """A problem; keys and batches by their logarithm."""
    while True:
        group = chance.choice((1, 2, 3, 4, 6, 8))
        most = 8 // group if chance.random() < 0.9 else 16
        problem = Problem(
            kind=chance.choice(KINDS),
            half=chance.random() < 0.5,
            head_dim=chance.choice((64, 128, 256, 64, 128, 256, 8 * chance.randint(1, 32))),
            heads_k=chance.choice((1, 2, 3, 4, 8, 16)),
            group=group,
            queries=chance.randint(1, most),
            batch=round(math.exp(chance.uniform(0, math.log(100)))),
            keys=round(math.exp(chance.uniform(math.log(400), math.log(30000)))),
            page=chance.choice((16, 16, 32, 48, 64, 128, 256)),
            causal=chance.random() < 0.4,
            left=chance.randint(1, 3000) if chance.random() < 0.25 else -1,
            softcap=chance.choice((0.0, 0.0, 0.0, 5.0)),
            captured=chance.random() < 0.25,
            seed=chance.randrange(1 << 30),
        )
        if problem.batch * problem.keys * problem.heads_k * problem.head_dim <= MOST_ELEMENTS:
            return problem


class Case:
    """The tensors of a problem, its call, and what is right."""

    def __init__(self, problem: Problem) -> None:
        self.p = p = problem
        chance = random.Random(p.seed)
        torch.manual_seed(p.seed)
        self.options: dict[str, Any] = {"device": "cuda", "dtype": torch.float16 if p.half else torch.bfloat16}
        self.q = torch.randn(p.batch, p.queries, p.heads_k * p.group, p.head_dim, **self.options)
        self.k, self.v = (torch.randn(p.batch, p.keys, p.heads_k, p.head_dim, **self.options) for _ in range(2))
        self.lengths = [p.keys] * p.batch
        if p.kind not in ("dense", "strided"):
            shortest = chance.choice((0, 1, p.keys // 2))
            self.lengths = [chance.choice((chance.randint(shortest, p.keys), p.keys, shortest)) for _ in range(p.batch)]
        self.used = torch.tensor(self.lengths, dtype=torch.int32, device="cuda")
        behind = torch.arange(p.keys, device="cuda")[None] >= self.used[:, None]
        self.k[behind] = self.v[behind] = float("nan")
        packed = p.kind.startswith("packed")
        self.queries = [chance.randint(0, p.queries) if packed else p.queries for _ in range(p.batch)]
        if packed and not sum(self.queries):
            self.queries[0] = p.queries
        self.chance = chance

    def ends(self, lengths: list[int]) -> torch.Tensor:
        return torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)

    def pages(self, keys: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """The keys in pages that a table of (batch, pages of a sequence) names."""
        p = self.p
        pool = torch.full((table.numel() + 3, p.page, p.heads_k, p.head_dim), float("nan"), **self.options)
        whole = torch.full((p.batch, table.shape[1] * p.page, p.heads_k, p.head_dim), float("nan"), **self.options)
        whole[:, : p.keys] = keys
        pool[table.flatten().long()] = whole.view(-1, *pool.shape[1:])
        return pool

    def call(self) -> Callable[[], Any]:
        """What makes (o, lse): rows of packed queries, or (batch, queries, heads, dim) and (batch, heads, queries)."""
        p = self.p
        how: dict[str, Any] = {"causal": p.causal, "window_size": (p.left, -1), "softcap": p.softcap}
        q, k, v = self.q, self.k, self.v
        if p.kind == "strided":
            how_strided = self.chance.choice(("heads first", "wider", "batch second"))
            k, v = (self.strided(tensor, how_strided) for tensor in (k, v))
        if p.kind in ("dense", "strided"):
            return lambda: flash_attn_func(q, k, v, return_attn_probs=True, **how)[:2]
        pages_each = -(-p.keys // p.page)
        table = torch.randperm(p.batch * pages_each + 3, device="cuda", dtype=torch.int32)[: p.batch * pages_each]
        table = table.view(p.batch, pages_each).contiguous()
        if p.kind in ("cache", "indexed", "paged"):
            how |= {"cache_seqlens": self.used, "return_softmax_lse": True}
            if p.kind == "indexed":
                index = torch.randperm(p.batch + 3, device="cuda", dtype=torch.int32)[: p.batch]
                pool = [torch.full((p.batch + 3, *k.shape[1:]), float("nan"), **self.options) for _ in range(2)]
                pool[0][index.long()], pool[1][index.long()] = k, v
                (k, v), how = pool, how | {"cache_batch_idx": index}
            if p.kind == "paged":
                k, v, how = self.pages(k, table), self.pages(v, table), how | {"block_table": table}
            return lambda: flash_attn_with_kvcache(q, k, v, **how)
        q = torch.cat([q[b, :n] for b, n in enumerate(self.queries)])
        ends = self.ends(self.queries), self.ends(self.lengths)
        if p.kind == "packed over pages":
            k, v, how = self.pages(k, table), self.pages(v, table), how | {"block_table": table}
        else:
            k, v = (
                torch.cat([x[b, :n] for b, n in enumerate(self.lengths)] + [x[0, :1] * float("nan")]) for x in (k, v)
            )
        return lambda: flash_attn_varlen_func(q, k, v, *ends, p.queries, p.keys, return_attn_probs=True, **how)[:2]

    def strided(self, keys: torch.Tensor, how: str) -> torch.Tensor:
        """The same in memory of another order, or amid what is not a number."""
        if how == "heads first":
            return keys.transpose(1, 2).contiguous().transpose(1, 2)
        if how == "batch second":
            return keys.transpose(0, 1).contiguous().transpose(0, 1)
        wider = torch.full((*keys.shape[:2], self.p.heads_k + 1, self.p.head_dim + 8), float("nan"), **self.options)
        wider[:, :, 1:, : self.p.head_dim] = keys
        return wider[:, :, 1:, : self.p.head_dim]

    def answers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As (batch, queries, heads, dim) and (batch, heads, queries); NaN where there is no query."""
        call = self.call()
        if not self.p.captured or NO_GRAPHS:
            o, lse = call()
        else:
            call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                before = self.q.clone()
                o, lse = call()
                after = o.clone()
            for _ in range(self.chance.randint(1, 3)):
                o.fill_(float("nan"))
                graph.replay()
            o = after
            del before
        torch.cuda.synchronize()
        if not self.p.kind.startswith("packed"):
            return o, lse
        whole = torch.full_like(self.q, float("nan"))
        whole_lse = torch.full(self.q.shape[:3], float("nan"), device="cuda").transpose(1, 2).contiguous()
        first = 0
        for b, n in enumerate(self.queries):
            whole[b, :n], whole_lse[b, :, :n] = o[first : first + n], lse[:, first : first + n]
            first += n
        return whole, whole_lse

    def errors(self) -> tuple[float, float]:
        """The largest errors of o and lse, of what may be."""
        p = self.p
        o, lse = self.answers()
        eps = 2**-10.5 if p.half else 2**-8
        worst_o = worst_lse = 0.0
        for b, (queries, length) in enumerate(zip(self.queries, self.lengths, strict=True)):
            if not queries:
                continue
            q = self.q[b, :queries].double().view(queries, p.heads_k, p.group, p.head_dim)
            k, v = self.k[b, :length].double(), self.v[b, :length].double()
            scores = torch.einsum("qhgd,khd->hgqk", q, k) / math.sqrt(p.head_dim)
            if p.softcap:
                scores = p.softcap * torch.tanh(scores / p.softcap)
            at = torch.arange(queries, device="cuda")[:, None] + length - queries
            key = torch.arange(length, device="cuda")[None]
            sees = torch.ones(queries, length, dtype=torch.bool, device="cuda")
            if p.causal:
                sees &= key <= at
            if p.left >= 0:
                sees &= key >= at - p.left
            scores = scores.masked_fill(~sees, float("-inf"))
            right_lse = torch.logsumexp(scores, -1) if length else scores.new_full(scores.shape[:3], float("-inf"))
            weights = torch.exp(scores - right_lse[..., None]).nan_to_num(0)
            right = torch.einsum("hgqk,khd->qhgd", weights, v).flatten(1, 2)
            size = torch.einsum("hgqk,khd->qhgd", weights, v.abs()).flatten(1, 2)
            got, got_lse = o[b, :queries].double(), lse[b, :, :queries].double().view(right_lse.shape)
            error = ((got - right).abs() / (eps * (right.abs() + size) + 1e-6)).nan_to_num(99)
            empty = right_lse == float("-inf")
            of_lse = (got_lse - right_lse).abs() / (1e-4 + 2e-5 * right_lse.abs())
            of_lse = torch.where(empty, (got_lse != float("inf")).double() * 99, of_lse).nan_to_num(99)
            worst_o, worst_lse = max(worst_o, error.max().item()), max(worst_lse, of_lse.max().item())
        return worst_o, worst_lse


@torch.no_grad()
def main() -> int:
    """Run until the time or the number is over; 1 if any call was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 30)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    until = time.monotonic() + options.seconds
    ran: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    wrong, worst = 0, 0.0
    while time.monotonic() < until and sum(ran.values()) < options.count:
        problem = draw(chance)
        try:
            of_o, of_lse = Case(problem).errors()
        except RuntimeError as error:
            if "CUDA error" in str(error):
                raise
            refused[str(error).splitlines()[0][:150]] += 1
            continue
        ran[problem.kind] += 1
        worst = max(worst, of_o)
        if of_o > 1 or of_lse > 1:
            wrong += 1
            print(f"WRONG {problem}: o {of_o:.2f}, lse {of_lse:.2f} of what may be", flush=True)
    for reason, count in refused.most_common(5):
        print(f"refused {count}: {reason}")
    print(", ".join(f"{kind} {count}" for kind, count in sorted(ran.items())))
    print(f"seed {options.seed}: {sum(ran.values())} calls, {wrong} wrong, worst o {worst:.2f} of what may be")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
