"""Random attention problems, each drawn only from a seed and its index."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

KINDS = ("dense", "packed", "cache", "paged", "deterministic")
SCORES = 1 << 22  # at most, of a problem of several sequences: they are made in float64


@dataclass(frozen=True)
class RandomProblem:
    """One call. None is an unbounded window."""

    kind: str
    dtype: str
    head_dim: int
    heads_q: int
    heads_k: int
    lengths_q: tuple[int, ...]
    lengths_k: tuple[int, ...]
    capacity: int
    causal: bool
    left: int | None
    right: int | None
    softcap: float
    scale: float
    spare: int
    stale: bool
    dirty: bool
    seed: int

    @property
    def batch(self) -> int:
        return len(self.lengths_q)

    @property
    def window(self) -> tuple[int, int]:
        return -1 if self.left is None else self.left, -1 if self.right is None else self.right

    @property
    def settings(self) -> tuple[Any, ...]:
        return self.scale, self.causal, *self.window, self.softcap

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float16 if self.dtype == "fp16" else torch.bfloat16


def a_length(chance: random.Random, most: int) -> int:
    kind = chance.random()
    if kind < 0.12:
        return 1
    if kind < 0.3:
        return chance.randint(1, min(most, 40))
    if kind < 0.55:
        return max(
            1, min(most, chance.choice((48, 64, 80, 96, 112, 128, 144, 192, 256, 384, 512)) + chance.randint(-1, 1))
        )
    return chance.randint(1, most)


def draw(seed: int, index: int) -> RandomProblem:
    """The problem of a seed and an index."""
    chance = random.Random(f"{seed}:{index}")
    kind = chance.choices(KINDS, (40, 30, 12, 14, 4))[0]
    most = chance.choice((64, 300, 700, 1500))
    batch = chance.randint(1, 5)
    heads_k = chance.choice((1, 1, 2, 3, 4))
    heads_q = heads_k * chance.choice((1, 1, 2, 3, 4, 8))
    paged_dims = (64, 128, 192, 256)
    dims = tuple(range(8, 257, 8)) if chance.random() < 0.4 else (64, 96, 128, 192, 256)
    head_dim = chance.choice(paged_dims if kind == "paged" and chance.random() < 0.9 else dims)
    varies = kind == "packed"
    longest_q = a_length(chance, 70 if kind in ("cache", "paged") else most)
    if kind in ("cache", "paged") and chance.random() < 0.4:
        longest_q = 1
    longest_k = longest_q if chance.random() < 0.45 else a_length(chance, most)
    if kind in ("dense", "deterministic"):
        if chance.random() < 0.03:
            longest_k = 0
        lengths_q, lengths_k = (longest_q,) * batch, (longest_k,) * batch
    else:
        none = chance.choice((0.0, 0.0, 0.2))

        def each(longest: int) -> tuple[int, ...]:
            return tuple(0 if chance.random() < none else a_length(chance, longest) for _ in range(batch))

        lengths_q = each(longest_q) if varies else (longest_q,) * batch
        lengths_k = lengths_q if varies and chance.random() < 0.4 else each(longest_k)
    capacity = max(lengths_k)
    if kind in ("cache", "paged"):
        capacity = max(capacity, 1) + chance.choice((0, 1, 30, 200))
    while len(lengths_q) > 1 and len(lengths_q) * heads_q * max(lengths_q) * max(capacity, 1) > SCORES:
        lengths_q, lengths_k = lengths_q[:-1], lengths_k[:-1]
    mask = chance.choice(("full", "full", "causal", "causal", "local", "left", "right"))
    reach = max((2, *lengths_k))
    return RandomProblem(
        kind=kind,
        dtype=chance.choice(("bf16", "bf16", "fp16")),
        head_dim=head_dim,
        heads_q=heads_q,
        heads_k=heads_k,
        lengths_q=lengths_q,
        lengths_k=lengths_k,
        capacity=capacity,
        causal=mask == "causal",
        left=chance.randrange(reach) if mask in ("local", "left") else None,
        right=chance.randrange(reach) if mask in ("local", "right") else None,
        softcap=chance.choice((0.0, 0.0, 0.0, 5.0, 15.0, 30.0)),
        scale=head_dim**-0.5 * chance.choice((1.0, 1.0, 1.0, 0.4, 1.7)),
        spare=chance.choice((0, 0, 7, 130)) if varies else 0,
        stale=kind in ("packed", "cache", "paged") and chance.random() < 0.25,
        dirty=chance.random() < 0.33 or kind == "paged",
        seed=chance.randrange(1 << 30),
    )
