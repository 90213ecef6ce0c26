"""A problem in the words of today's models, drawn from a seed and an index; drawn_call.py makes its tensors and calls."""

from __future__ import annotations

import argparse
import random

KINDS = ("dense", "packed", "cache", "paged", "paged_packed")
PAGES = {False: (1, 8, 16, 16, 32, 48, 64, 64, 128, 128, 256), True: (1, 16, 64, 128, 160, 224, 256)}
SCORES = 1 << 22
"""At most, of a problem of several sequences: they are made in float64; four times as many of one."""


def a_length(chance: random.Random, most: int) -> int:
    """One, a few, about the end of a tile, or any."""
    kind = chance.random()
    if kind < 0.12:
        return 1
    if kind < 0.3:
        return chance.randint(1, min(most, 40))
    if kind < 0.55:
        tile = chance.choice((48, 64, 80, 96, 112, 128, 144, 192, 256, 384, 512))
        return max(1, min(most, tile + chance.randint(-1, 1)))
    return chance.randint(1, most)


class Problem:
    """What is drawn. FP8 with factors of q, k and v, qv, chunks, queries in use and keys that are appended are fa3's."""

    def __init__(self, options: argparse.Namespace, index: int) -> None:
        chance = random.Random(f"{options.seed}:{index}")
        fa3 = self.fa3 = options.family == "fa3"
        self.index, self.leave_out = index, options.leave_out
        self.kind = chance.choice(options.kinds or (*KINDS, *(["appended"] if fa3 else [])))
        self.type = chance.choice(options.dtypes or (["e4m3", "bf16"] if fa3 else ["bf16"]))
        self.eight = self.type == "e4m3"
        self.qv = fa3 and not self.eight and chance.random() < 0.7
        exact, other = chance.choice(options.head_dims), chance.randrange(8, max(options.head_dims) + 1, 8)
        self.dim, self.dim_v = chance.choice(((exact, exact), (exact, other), (other, exact), (exact, exact)))
        if fa3:
            fewer = max(16, exact - 16 * chance.randrange(4))
            self.dim, self.dim_v = (chance.choice((exact, fewer)),) * 2 if self.eight else (64, 512)
        self.heads_k = chance.choice((1, 2, 3))
        self.heads = self.heads_k * chance.choice((1, 1, 2, 4, 5, *([16] if fa3 else [])))
        self.batch = chance.choice((1, 2, 3, 4, *([9] if fa3 else [])))
        longest = chance.choice((3, 40, 130, 300, 520, *([1500] if fa3 else [])))
        self.page = chance.choice(PAGES[fa3]) if self.kind.startswith("paged") else 0
        self.capacity = -(-longest // self.page) * self.page if self.page else longest
        self.sq = chance.choice((1, 1, 7, longest, longest + 9))
        self.new = min(chance.choice((1, 3, 70)), self.capacity) if self.kind == "appended" else 0
        if self.new:
            self.sq = min(self.sq, self.capacity)
        each = self.packed = self.kind.endswith("packed")
        self.of_q = [
            chance.choice((self.sq, chance.randrange(self.sq + 1))) if each else self.sq for _ in range(self.batch)
        ]
        some_in_use = fa3 and each and chance.random() < 0.4
        self.unused_q = [chance.randrange(n + 1) if some_in_use else 0 for n in self.of_q]
        full = self.kind == "dense" or (not fa3 and chance.random() < 0.1)
        room = self.capacity - self.new
        self.of_k = [
            self.capacity if full else self.new + chance.choice((0, 1, room, chance.randrange(room + 1)))
            for _ in range(self.batch)
        ]
        self.of_k = [min(n, self.capacity) for n in self.of_k]
        self.lengths_given = not each if fa3 else self.kind != "dense" and not (full and chance.random() < 0.5)
        self.causal = chance.random() < 0.4
        self.left = chance.randrange(longest + 5) if chance.random() < 0.3 else None
        self.right = chance.randrange(longest + 5) if not self.causal and chance.random() < 0.2 else None
        self.chunk = chance.randrange(1, longest + 5) if fa3 and chance.random() < 0.2 else 0
        self.sink = chance.random() < (0.3 if fa3 else 0.7) and not some_in_use
        self.negative = chance.random() < 0.3
        self.with_d_lse = chance.random() < 0.5
        self.factors = [name for name in ("q", "k", "v") if self.eight and chance.random() < 0.7]
        self.splits = int(fa3)
        if options.splits and (fa3 or not each):
            self.splits = chance.choice((0, 0, 1, 2, 3, 7))
        self.scale = chance.choice(((self.dim + self.qv * self.dim_v) ** -0.5, 0.11, *([] if fa3 else [0.3])))
        self.softcap = chance.choice((0.0, 5.0, 15.0, 30.0)) if options.softcap else 0.0
        self.gradients = self.kind in ("dense", "packed") and not options.forward_only and not fa3
        self.dirty = self.fixed = False
        if options.shapes == "many":
            self.vary(chance, options)
        if options.shapes == "long":
            self.lengthen(chance)

    def vary(self, chance: random.Random, options: argparse.Namespace) -> None:
        """Other sizes: up to 1,500 rows, about the ends of tiles, sequences with none, 8 query heads for a key head."""
        any_dim = range(8, max(options.head_dims) + 1, 8)
        self.dim = self.dim_v = chance.choice(any_dim if chance.random() < 0.4 else options.head_dims)
        self.scale = self.dim**-0.5 * chance.choice((1.0, 1.0, 1.0, 0.4, 1.7))
        self.heads_k, group, batch = (
            chance.choice((1, 1, 2, 3, 4)),
            chance.choice((1, 1, 2, 3, 4, 8)),
            chance.randint(1, 5),
        )
        most, cached = chance.choice((64, 300, 700, 1500)), self.kind in ("cache", "paged")
        longest_q = 1 if cached and chance.random() < 0.4 else a_length(chance, 70 if cached else most)
        longest_k = longest_q if chance.random() < 0.45 else a_length(chance, most)
        none = chance.choice((0.0, 0.0, 0.2))

        def each(longest: int) -> list[int]:
            return [0 if chance.random() < none else a_length(chance, longest) for _ in range(batch)]

        self.of_q = each(longest_q) if self.packed else [longest_q] * batch
        self.of_k = list(self.of_q) if self.packed and chance.random() < 0.4 else each(longest_k)
        if self.kind == "dense":
            self.of_k = [0 if chance.random() < 0.03 else longest_k] * batch
        spare = chance.choice((0, 1, 30, 200)) if cached else 0
        while True:
            self.sq, self.capacity = max(1, *self.of_q), max(self.of_k) + spare
            if self.kind != "dense":
                self.capacity = -(-max(1, self.capacity) // max(1, self.page)) * max(1, self.page)
            size = len(self.of_q) * self.heads_k * group * self.sq * self.capacity
            if size <= (SCORES if len(self.of_q) > 1 else 4 * SCORES):
                break
            if len(self.of_q) > 1:
                self.of_q.pop(), self.of_k.pop()
            else:
                self.heads_k, group = max(1, self.heads_k // 2), max(1, group // 2)
        self.batch, self.heads, self.unused_q = len(self.of_q), self.heads_k * group, [0] * len(self.of_q)
        self.lengths_given = self.kind != "dense"
        mask, reach = chance.choice(("full", "full", "causal", "causal", "local", "left", "right")), max(2, *self.of_k)
        self.causal = mask == "causal"
        self.left = chance.randrange(reach) if mask in ("local", "left") else None
        self.right = chance.randrange(reach) if mask in ("local", "right") else None
        self.dirty = chance.random() < 0.33 or self.kind == "paged"
        self.fixed = self.gradients and chance.random() < 0.06

    def lengthen(self, chance: random.Random) -> None:
        """One or two heads of thousands of rows."""
        length = chance.choice((4096, 8192, 12345))
        self.dim_v, self.heads_k, self.heads, self.batch = self.dim, 1, chance.choice((1, 2)), 1
        self.kind, self.page, self.packed = chance.choice((("dense", 0, False), ("packed", 0, True)))
        self.of_q, self.of_k, self.unused_q = [length - chance.choice((0, 0, 777))], [length], [0]
        if self.packed and length < 12345:
            self.batch, self.unused_q = 2, [0, 0]
            self.of_q, self.of_k = [*self.of_q, length // 3], [length, length - chance.randrange(3000)]
        self.sq, self.capacity, self.lengths_given = max(self.of_q), length, self.packed
        self.left = chance.randrange(length) if self.left is not None else None
        self.right = chance.randrange(length) if self.right is not None else None

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items())
