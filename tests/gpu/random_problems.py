"""Many random problems: family fa4 against fa2 and float64, in an environment with a flash_attn wheel that has both.

Usage: python tests/gpu/random_problems.py [--count 10000] [--big 32] [--seed 1] [--processes 4] [--only INDEX]

A problem is drawn only from the seed and its index. The error of fa4 may be twice that of fa2, and what the rounding
of o does to a gradient too. Outputs start as what is not a number, so that a row which nobody writes is seen; so
does shared memory before every call of one problem in three. Stale problems also have such rows where no sequence is.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from flash_attn_2_cuda import bwd, fwd, fwd_kvcache, library, varlen_bwd, varlen_fwd
from random_draw import RandomProblem, draw
from shared_memory import Filler
from shares import of_all

FA2, FA4, BEST = 2, 4, 0
PAGE = 256
REFUSALS = ("it has no ", "is not in this library", "which its kernels do not count", "head dim between")
NAMES = ("o", "lse", "dq", "dk", "dv")
SLACK = {"dq": 1e-4, "dk": 1e-4, "dv": 1e-4}  # of sums in float32, as in gradients.py
LEFT_BY_ORDER = 1e-6
"""What float32 leaves of a gradient that is 0, where a query sees one key: dP - D, summed in two orders."""


class Case:
    """The tensors of a problem, its calls, and its exact answers on padded tensors."""

    def __init__(self, problem: RandomProblem, filler: Filler) -> None:
        self.p, self.filler = problem, filler
        p = problem
        source = torch.Generator(device="cuda").manual_seed(p.seed)
        most_q = max(p.lengths_q)

        def normal(length: int, heads: int) -> torch.Tensor:
            made = torch.randn(p.batch, length, heads, p.head_dim, device="cuda", generator=source)
            return made.to(p.torch_dtype)

        self.q, self.d_o = normal(most_q, p.heads_q), normal(most_q, p.heads_q)
        if p.softcap:
            self.q *= p.softcap / 4
        self.k, self.v = normal(p.capacity, p.heads_k), normal(p.capacity, p.heads_k)
        self.of_q, self.of_k = (torch.tensor(n, dtype=torch.int32, device="cuda") for n in (p.lengths_q, p.lengths_k))
        # A right end of as many keys is none for upstream and so for the wheel (windows in wheel/runtime/c_library.py).
        pages = -(-p.capacity // PAGE) * PAGE
        self.longest_k = {"packed": max(p.lengths_k), "paged": pages}.get(p.kind, p.capacity)
        self.mask_q = torch.arange(most_q, device="cuda")[None] < self.of_q[:, None]
        self.mask_k = torch.arange(p.capacity, device="cuda")[None] < self.of_k[:, None]
        if p.kind == "paged":
            self.make_pages(source)

    def make_pages(self, source: torch.Generator) -> None:
        p = self.p
        each = -(-p.capacity // PAGE)
        order = torch.randperm(p.batch * each + 2, device="cuda", generator=source)[: p.batch * each]
        self.table = order.view(p.batch, each).to(torch.int32)

        def paged(padded: torch.Tensor) -> torch.Tensor:
            rows = torch.nn.functional.pad(self.aged(padded), (0, 0, 0, 0, 0, each * PAGE - p.capacity), value=1.0)
            if p.stale:
                rows[:, p.capacity :] = float("nan")
            pool = rows.new_full((p.batch * each + 2, PAGE, *rows.shape[2:]), float("nan"))
            pool[order] = rows.reshape(p.batch * each, PAGE, *rows.shape[2:])
            return pool

        self.pages = paged(self.k), paged(self.v)

    def aged(self, padded: torch.Tensor) -> torch.Tensor:
        """Keys or values whose rows after the last one of a sequence are stale."""
        if not self.p.stale:
            return padded
        return padded.masked_fill(~self.mask_k[:, :, None, None], float("nan"))

    def call(self, family: int, function: Any, *arguments: Any) -> list[torch.Tensor]:
        library._family = family
        if self.p.dirty:
            self.filler.fill(torch.cuda.current_stream().cuda_stream)
        return function(*arguments)

    def pack(self, padded: torch.Tensor, mask: torch.Tensor, *, stale: bool) -> torch.Tensor:
        rows = padded[mask]
        fill = float("nan") if stale else 1.0
        return torch.cat([rows, rows.new_full((self.p.spare, *rows.shape[1:]), fill)])

    def run(self, family: int) -> dict[str, torch.Tensor]:
        """Answers of a family, padded; what no sequence has is 0."""
        p = self.p
        if p.kind == "packed":
            return self.run_packed(family)
        unwritten = torch.full_like(self.q, float("nan"))
        if p.kind in ("cache", "paged"):
            keys = self.pages if p.kind == "paged" else (self.aged(self.k), self.aged(self.v))
            table = self.table if p.kind == "paged" else None
            given = (self.q, *keys, None, None, self.of_k, None, None, None, None, table, None, unwritten)
            o, lse = self.call(family, fwd_kvcache, *given, *p.settings, True, 0)
            return {"o": o, "lse": lse}
        given = (self.q, self.k, self.v, unwritten, None, 0.0)
        o, lse, *_ = self.call(family, fwd, *given, *p.settings, False, None)
        empty = [torch.full_like(t, float("nan")) for t in (self.q, self.k, self.v)]
        given = (self.d_o, self.q, self.k, self.v, o, lse, *empty, None, 0.0)
        fixed = p.kind == "deterministic"
        dq, dk, dv, _ = self.call(family, bwd, *given, *p.settings, fixed, None, None)
        return {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}

    def run_packed(self, family: int) -> dict[str, torch.Tensor]:
        p = self.p
        cu_q, cu_k = (torch.nn.functional.pad(n.cumsum(0, dtype=torch.int32), (1, 0)) for n in (self.of_q, self.of_k))
        q, d_o = (self.pack(t, self.mask_q, stale=p.stale) for t in (self.q, self.d_o))
        k, v = (self.pack(t, self.mask_k, stale=p.stale) for t in (self.k, self.v))
        longest = (max(p.lengths_q), max(p.lengths_k))
        scale, *others = p.settings
        given = (q, k, v, torch.full_like(q, float("nan")), cu_q, cu_k, None, None, None, None, *longest, 0.0)
        o, lse, *_ = self.call(family, varlen_fwd, *given, scale, False, *others, False, None)
        empty = [torch.full_like(t, float("nan")) for t in (q, k, v)]
        given = (d_o, q, k, v, o, lse, *empty, cu_q, cu_k, None, *longest, 0.0)
        dq, dk, dv, _ = self.call(family, varlen_bwd, *given, scale, False, *others, False, None, None)

        def padded(rows: torch.Tensor, like: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            whole = torch.zeros_like(like)
            whole[mask] = rows[: len(rows) - p.spare]
            return whole

        whole_lse = torch.zeros(p.batch, longest[0], p.heads_q, device="cuda")
        whole_lse[self.mask_q] = lse[:, : lse.shape[1] - p.spare].t()
        answers = {"o": padded(o, self.q, self.mask_q), "lse": whole_lse.transpose(1, 2)}
        answers["dq"] = padded(dq, self.q, self.mask_q)
        return answers | {"dk": padded(dk, self.k, self.mask_k), "dv": padded(dv, self.v, self.mask_k)}

    def exact(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Answers in float64, and what an error may be, apart from twice fa2's."""
        p = self.p
        half_ulp = torch.finfo(p.torch_dtype).eps / 2
        group = p.heads_q // p.heads_k

        def of_queries(t: torch.Tensor) -> torch.Tensor:  # (b, hk, g, sq, d)
            return (
                t.double()
                .masked_fill(~self.mask_q[:, :, None, None], 0)
                .unflatten(2, (p.heads_k, group))
                .permute(0, 2, 3, 1, 4)
            )

        def of_keys(t: torch.Tensor) -> torch.Tensor:  # (b, hk, 1, sk, d)
            return t.double().masked_fill(~self.mask_k[:, :, None, None], 0).permute(0, 2, 1, 3)[:, :, None]

        q, d_o, k, v = of_queries(self.q), of_queries(self.d_o), of_keys(self.k), of_keys(self.v)
        scores = q @ k.transpose(-1, -2) * p.scale
        slope = None
        if p.softcap:
            bent = torch.tanh(scores / p.softcap)
            scores, slope = bent * p.softcap, 1 - bent * bent
        row = torch.arange(q.shape[3], device="cuda")[None, :, None] + (self.of_k - self.of_q)[:, None, None]
        column = torch.arange(p.capacity, device="cuda")[None, None, :]
        hidden = ~(self.mask_q[:, :, None] & self.mask_k[:, None, :])
        if p.left is not None:
            hidden = hidden | (column < row - p.left)
        if p.causal or (p.right is not None and p.right < self.longest_k):
            hidden = hidden | (column > row + (p.right or 0))
        scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
        lse = torch.logsumexp(scores, -1) if p.capacity else scores.new_full(scores.shape[:-1], float("-inf"))
        seen = lse.isfinite()
        weights = torch.exp(scores - lse.masked_fill(~seen, 0.0)[..., None])
        o = weights @ v
        answers = {"o": self.rows(o), "lse": lse.masked_fill(~seen, float("inf")).flatten(1, 2)}
        floors = {
            "o": half_ulp * largest(o),
            "lse": 2e-4 + 2e-6 * largest(lse.masked_fill(~seen, 0.0)) + 2e-3 * p.softcap,
        }
        if p.kind in ("cache", "paged"):
            return answers, floors
        d_scores = weights * (d_o @ v.transpose(-1, -2) - (d_o * o).sum(-1, keepdim=True))
        of_rounding = (d_o * (o.to(p.torch_dtype).double() - o)).sum(-1, keepdim=True)
        rounding = weights * of_rounding
        if slope is not None:
            d_scores, rounding = d_scores * slope, rounding * slope
        d_v = (weights.transpose(-1, -2) @ d_o).sum(2)
        d_k = (d_scores.transpose(-1, -2) @ q).sum(2) * p.scale
        answers |= {"dq": self.rows(d_scores @ k * p.scale), "dk": d_k.transpose(1, 2), "dv": d_v.transpose(1, 2)}
        floors |= {name: half_ulp * largest(answers[name]) for name in ("dq", "dk", "dv")}
        floors["dq"] += 2 * largest(rounding @ k) * p.scale
        floors["dk"] += 2 * largest((rounding.transpose(-1, -2) @ q).sum(2)) * p.scale
        # dP - D is 0 where a query sees one key; the kernels sum both in float32, each in its own order. What that
        # leaves has any sign, so the squares add up.
        left_by_order = weights * (d_o.abs() @ v.abs().transpose(-1, -2)) * torch.finfo(torch.float32).eps
        squares = left_by_order.square()
        floors["dq"] += 2 * largest((squares @ k.square()).sqrt()) * p.scale
        floors["dk"] += 2 * largest((squares.transpose(-1, -2) @ q.square()).sum(2).sqrt()) * p.scale
        return answers, floors

    @staticmethod
    def rows(t: torch.Tensor) -> torch.Tensor:
        return t.flatten(1, 2).transpose(1, 2)

    def errors(self, answers: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The largest error of each answer; rows without a key must be 0, and +inf in lse, exactly."""
        found = {}
        for name, right in exact.items():
            got = answers[name].double()
            if name == "lse":
                inside = self.mask_q[:, None, :].expand_as(right)
                error = torch.where(
                    right == float("inf"), torch.where(got == right, 0.0, float("nan")), (got - right).abs()
                )
            else:
                mask = self.mask_k if name in ("dk", "dv") else self.mask_q
                inside = mask[:, :, None, None].expand_as(right)
                error = (got - right).abs()
                if name == "o":
                    blind = (exact["lse"] == float("inf")).transpose(1, 2)[..., None]
                    error = torch.where(blind & (got != 0), float("nan"), error)
            found[name] = largest(error.masked_fill(~inside, 0.0))
        return found


def largest(t: torch.Tensor) -> torch.Tensor:
    """The largest magnitude; not a number if any is not."""
    return t.abs().amax().double() if t.numel() else torch.zeros((), dtype=torch.float64, device="cuda")


def judge(index: int, problem: RandomProblem, filler: Filler) -> dict[str, Any]:
    """Run one problem. Its misses are (answer, error of fa4, error of fa2, floor)."""
    case = Case(problem, filler)
    result: dict[str, Any] = {"index": index, "kind": problem.kind + (", stale" if problem.stale else "")}
    fixed = problem.kind == "deterministic"
    try:
        ours = case.run(FA4)
        if fixed:
            return result | {"misses": [("taken by fa4, which does not promise the same bits", 0.0, 0.0, 0.0)]}
    except RuntimeError as error:
        if not any(words in str(error) for words in REFUSALS):
            raise
        if not fixed:
            return result | {"refused": str(error)}
        ours, again = case.run(BEST), case.run(BEST)
        if not all(torch.equal(ours[name], again[name]) for name in ("dq", "dk", "dv")):
            return result | {"misses": [("bits", 0.0, 0.0, 0.0)]}
    theirs = case.run(FA2)
    exact, floors = case.exact()
    errors = [case.errors(answers, exact) for answers in (ours, theirs)]
    names = list(exact)
    numbers = torch.stack([torch.stack([one[name].double() for name in names]) for one in (*errors, floors)]).tolist()
    misses, ratios = [], {}
    for name, of_fa4, of_fa2, floor in zip(names, *numbers, strict=True):
        allowed = floor + SLACK.get(name, 1e-5) + (0.0 if name == "lse" else 2 * of_fa2)
        if not of_fa4 <= allowed:
            misses.append((name, of_fa4, of_fa2, floor))
        elif name != "lse":
            ratios[name] = of_fa4 / max(of_fa2, floor, 1e-5)
    wrong = [name for name, value in zip(names, numbers[1], strict=True) if value != value]  # noqa: PLR0124  (NaN)
    return result | {"misses": misses, "ratios": ratios, "fa2_wrong": wrong}


def big(seed: int, index: int, filler: Filler) -> dict[str, Any]:
    """A large problem, by both families; the norm of the difference."""
    chance = random.Random(f"{seed}:big:{index}")
    dim = chance.choice((64, 96, 128, 192, 256, 80, 248))
    heads_k = chance.choice((1, 2, 4))
    length = chance.choice((4096, 8192, 12345, 16384))
    problem = replace(draw(seed, index), kind=chance.choice(("dense", "packed")), head_dim=dim, heads_k=heads_k)
    lengths_k = (length, length - chance.randrange(3000))
    lengths_q = (length - chance.choice((0, 0, 777)), length // 3)
    if problem.kind == "dense":
        lengths_q, lengths_k = (lengths_q[0],) * 2, (length,) * 2
    problem = replace(
        problem, heads_q=heads_k * chance.choice((1, 4)), lengths_q=lengths_q, lengths_k=lengths_k, capacity=length,
        scale=dim**-0.5, spare=0, stale=False,
    )  # fmt: skip
    case = Case(problem, filler)
    ours, theirs = case.run(FA4), case.run(FA2)
    eps = torch.finfo(problem.torch_dtype).eps
    misses = []
    for name in NAMES:
        a, b = (torch.where(t[name].isfinite(), t[name], t[name].sign() * 1e3).double() for t in (ours, theirs))
        nans = bool((ours[name].isnan() != theirs[name].isnan()).any())
        difference, whole = float((a - b).norm()), float(b.norm())
        share = {"o": eps, "lse": 1e-4 + 1e-3 * bool(problem.softcap)}.get(name, 2 * eps)
        allowed = share * whole + (LEFT_BY_ORDER * b.numel() ** 0.5 if name in ("dq", "dk") else 0.0)
        if nans or not difference <= allowed:
            misses.append((f"{name} of {problem}, norm {whole:.3g}", difference, 0.0, allowed))
    return {"index": f"big {index}", "kind": "big", "misses": misses, "ratios": {}, "fa2_wrong": []}


def work(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The results of this process's share."""
    torch.cuda.init()
    torch.empty(1, device="cuda")
    filler = Filler()
    first, step = options.share
    indices = [options.only] if options.only is not None else range(first, options.count, step)
    for index in indices:
        yield judge(index, draw(options.seed, index), filler)
    for index in range(first, options.big if options.only is None else 0, step):
        yield big(options.seed, index, filler)


def report(options: argparse.Namespace, results: list[dict[str, Any]], seconds: float) -> int:
    """Print what was missed, then the table."""
    missed = [r for r in results if r.get("misses")]
    for r in missed:
        for name, of_fa4, of_fa2, floor in r["misses"]:
            print(
                f"MISS {r['kind']}: {name} fa4 {of_fa4:.3g}, fa2 {of_fa2:.3g}, floor {floor:.3g}: --seed {options.seed} --only {r['index']}"
            )
    print(f"\n{len(results)} problems, seed {options.seed}, {seconds:.0f} s, {torch.cuda.get_device_name()}")
    print(f"{'kind':22} {'run':>6} {'refused':>8} {'missed':>7} {'fa2 NaN':>8}")
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for r in results:
        kinds[r["kind"]].append(r)
    for kind, rows in sorted(kinds.items()):
        refused = sum("refused" in r for r in rows)
        wrong = sum(bool(r.get("fa2_wrong")) for r in rows)
        print(f"{kind:22} {len(rows):6} {refused:8} {sum(bool(r.get('misses')) for r in rows):7} {wrong:8}")
    for reason, count in Counter(r["refused"][:120] for r in results if "refused" in r).most_common(8):
        print(f"refused {count}: {reason}")
    for name in NAMES:
        ratios = sorted(r["ratios"][name] for r in results if name in r.get("ratios", {}))
        if ratios:
            at_99 = ratios[int(0.99 * (len(ratios) - 1))]
            print(
                f"error of fa4 over that of fa2, {name}: median {statistics.median(ratios):.3f}, 99 % {at_99:.3f}, largest {ratios[-1]:.3f}"
            )
    print(f"{len(results) - len(missed)} passed or refused, {len(missed)} missed")
    return bool(missed)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--big", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=0, help="0: four for each GPU")
    parser.add_argument("--only", type=int)
    parser.add_argument("--share", type=int, nargs=2, metavar=("I", "N"))
    options = parser.parse_args()
    began = time.monotonic()
    if options.share:
        for result in work(options):
            print(json.dumps(result), flush=True)
        return 0
    if options.only is not None:
        options.share = (0, 1)
        print(draw(options.seed, options.only))
        return report(options, list(work(options)), time.monotonic() - began)
    options.processes = options.processes or 4 * torch.cuda.device_count()
    return report(options, list(of_all(sys.argv, options.processes)), time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
