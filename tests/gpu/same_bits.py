"""Decoding calls right after their keys are written, each made four times: all must have the same bits.

Usage: python tests/gpu/same_bits.py [--seconds 60] [--seed 1]; in an environment with a flash_attn wheel. A wrong answer to one
in a thousand calls is found by this and not by comparing single calls (benchmarks/fa4.md); one process or several at once.
"""

from __future__ import annotations

import argparse
import random
import time

import torch
from flash_attn import flash_attn_func


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, until = random.Random(options.seed), time.monotonic() + options.seconds
    calls = odd = 0
    while time.monotonic() < until:
        head_dim, heads_k, group = (
            chance.choice((64, 128, 128, 256)),
            chance.choice((1, 2, 4, 8, 16)),
            chance.choice((1, 2, 4)),
        )
        batch = max(1, chance.choice((528, 600, 801, 1056, 1392, 2000)) // heads_k)
        more = chance.choice((1, 1, 2, 8))  # in the last tile
        keys = chance.choice((0, 16, 48, 208, 512, 560, 592, 800)) + more
        made = {"device": "cuda", "dtype": torch.bfloat16}
        q = torch.randn(batch, 1, heads_k * group, head_dim, **made)
        k, v = (torch.randn(batch, keys, heads_k, head_dim, **made) for _ in range(2))
        answers = [flash_attn_func(q, k, v) for _ in range(4)]
        usual = torch.stack(answers).median(0).values
        differ = sum(not torch.equal(o, usual) for o in answers)
        calls, odd = calls + len(answers), odd + differ
        if differ:
            print(f"ODD: {differ} of 4: {batch} x {keys} keys, {heads_k} heads of {head_dim}, {group} each", flush=True)
    print(f"seed {options.seed}: {calls} calls, {odd} with other bits")
    raise SystemExit(odd > 0)


if __name__ == "__main__":
    main()
