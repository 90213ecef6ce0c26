"""Random problems in the words of today's models, through the C ABI, against float64.

Usage: python tests/gpu/random_models.py LIBRARY FAMILY [--seconds 60] [--seed 1] [--processes 4] [--only INDEX]

LIBRARY is libflashattention.so. Sinks and their gradient, gradients of lse, -inf for rows that see no key, head dims of v other than
those of q and k, pages of any size, packed queries over pages, split keys; of family fa3 what only it has, as drawn_call.py says.
``--softcap`` draws one, for libraries that have it. ``--shapes many`` draws up to 1,500 rows about the ends of tiles, sequences with none, fills
shared memory before some calls, and asks some gradients for the same bits; ``--shapes long`` up to 12,345 rows (two processes fit on a GPU).
``--leave-out sink`` (or left, d_lse, pages, softcap, its slope, chunk, qv, v_descale) leaves that out of the reference, to see that the comparison can fail.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from drawn_call import FAMILIES, Case
from drawn_problem import Problem
from shares import of_all

from support.fa_abi import Library, Status

MOST = 6 << 30
"""Bytes of the GPU that may stay reserved: several of these run at once."""


def judge(library: Library, family: int, p: Problem) -> dict[str, Any]:
    case = Case(p)
    named = {
        "sink": p.sink,
        "dv": p.dim != p.dim_v,
        "splits": p.splits > 1,
        "chunk": p.chunk,
        "qv": p.qv,
        "e4m3": p.eight,
        "softcap": p.softcap,
        "dirty": p.dirty,
        "fixed": p.fixed,
    }
    result: dict[str, Any] = {
        "index": p.index,
        "kind": p.kind,
        "words": [word for word, there in named.items() if there],
    }
    answer = case.forward(library, family)
    if answer.status is Status.OK and p.gradients:
        answer = case.backward(library, family)
        if p.fixed and answer.status is not Status.OK:
            answer = case.backward(library, 0)
    if answer.status is not Status.OK:
        return result | {"refused": f"{answer.status.name}: {answer.text}"}
    torch.cuda.synchronize()
    share = case.shares()
    if p.fixed:
        share["bits"] = case.bits_differ(library)
    return result | {"misses": [(name, part) for name, part in share.items() if part > 1], "share": share}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--only", type=int)
    parser.add_argument("--share", type=int, nargs=2, metavar=("I", "N"))
    parser.add_argument("--head-dims", type=lambda text: tuple(map(int, text.split(","))), default=(64, 128))
    parser.add_argument("--dtypes", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--shapes", choices=("usual", "many", "long"), default="usual")
    parser.add_argument("--splits", action="store_true")
    parser.add_argument("--softcap", action="store_true")
    parser.add_argument("--forward-only", action="store_true")
    parser.add_argument("--leave-out", default="")
    return parser.parse_args()


def work(options: argparse.Namespace) -> None:
    """Print the results of this process's share, a line each."""
    library, end = Library(options.library), time.monotonic() + options.seconds
    first, step = options.share or (0, 1)
    for index in [options.only] if options.only is not None else range(first, options.count, step):
        if time.monotonic() > end:
            break
        problem = Problem(options, index)
        try:
            print(json.dumps(judge(library, FAMILIES[options.family], problem)), flush=True)
        except Exception as error:  # a dead context: nothing more can be said
            raise SystemExit(f"{error} {problem}"[:600]) from error
        if torch.cuda.memory_reserved() > MOST:
            torch.cuda.empty_cache()


def main() -> int:
    options = parsed()
    if options.only is not None or options.share:
        work(options)
        return 0
    return report(options, list(of_all(sys.argv, options.processes)))


def report(options: argparse.Namespace, results: list[dict[str, Any]]) -> int:
    missed = [r for r in results if r.get("misses")]
    for r in missed[:12]:
        print(f"MISS {r['kind']} {r.get('words')} {r['misses']}: --seed {options.seed} --only {r['index']}")
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for r in results:
        outcomes = {"refused": "refused" in r, "missed": r.get("misses")}
        by_kind[r["kind"]].update(["all", *(name for name, there in outcomes.items() if there), *r.get("words", ())])
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
