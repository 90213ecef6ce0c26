"""Where FlashAttention-2 was measured to be faster, for the C layer to leave those problems to it."""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

TABLE = Path(__file__).with_name("speed.csv")
UNEVEN = TABLE.with_name("speed_uneven.csv")
"""Of packed sequences, and of caches, which have the same kernels."""

_SHORTEST, _LONGEST = 0, 2**31 - 1


class Measured(msgspec.Struct, frozen=True):
    """A problem on a GPU of an architecture such as 90, and the TFLOP/s of both families."""

    arch: int
    pass_: str
    head_dim: int
    mask: str
    seqlen: int
    fa4: float
    fa2: float


class Slower(msgspec.Struct, frozen=True, order=True):
    """Problems that FlashAttention-2 is faster at: those of ``shortest`` to ``longest`` keys."""

    arch: int
    pass_: str
    head_dim: int
    mask: str
    shortest: int
    longest: int


def read_table(path: Path = TABLE) -> tuple[Measured, ...]:
    """Every measurement of a table."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return tuple(
        Measured(
            int(row["arch"]),
            row["kernel"],
            int(row["head_dim"]),
            row["mask"],
            int(row["seqlen"]),
            float(row["fa4"]),
            float(row["fa2"]),
        )
        for row in csv.DictReader(lines)
    )


def slower(measured: Iterable[Measured]) -> Iterator[Slower]:
    """Ranges of lengths, each around a length that was measured and up to half way to its neighbours, by ratio.

    Several problems of one length, of different batches and heads, count together, by the geometric mean.
    """
    ratios: dict[tuple[int, str, int, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in measured:
        ratios[one.arch, one.pass_, one.head_dim, one.mask][one.seqlen].append(one.fa4 / one.fa2)
    for kind, by_length in sorted(ratios.items()):
        lengths = sorted(by_length)
        for place, length in enumerate(lengths):
            if math.prod(by_length[length]) < 1:
                yield Slower(*kind, *_around(lengths, place))


def _around(lengths: Sequence[int], place: int) -> tuple[int, int]:
    between = [math.isqrt(a * b) for a, b in itertools.pairwise(lengths)]
    bounds = [_SHORTEST, *between, _LONGEST]
    return (bounds[place] + 1 if place else _SHORTEST), bounds[place + 1]


def table_lines(measured: Sequence[Measured], uneven: Sequence[Measured]) -> Iterator[str]:
    """Yield the macros of ``native/src/fa4/speed.cpp``: the architectures measured, and where fa4 is slower."""
    yield f"#define FA4_CONFIG_MEASURED(X) {' '.join(f'X({arch})' for arch in sorted({m.arch for m in measured}))}"
    rows = [
        f"X({one.arch}, {one.pass_}, {one.head_dim}, {one.mask}, {is_dense}, {one.shortest}, {one.longest})"
        for is_dense, table in ((1, measured), (0, uneven))
        for one in slower(table)
    ]
    yield " \\\n    ".join(["#define FA4_CONFIG_SLOWER(X)", *rows])
