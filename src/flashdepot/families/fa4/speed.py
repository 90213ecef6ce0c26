"""Where FlashAttention-2 was measured to be faster, for the C layer to leave those problems to it."""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import msgspec

_FILES = {"dense": "speed.csv", "packed": "speed_packed.csv", "cache": "speed_cache.csv"}
TABLES = {kind: Path(__file__).with_name(name) for kind, name in _FILES.items()}
"""By how sequences lie, as native/src/problem.h names it: kernels have other tiles for each."""

_FIRST, _LAST = 0, 2**31 - 1
"""Of a range that has no end on that side."""


class Measured(msgspec.Struct, frozen=True):
    """A problem on a GPU of an architecture such as 90, and the TFLOP/s of both families."""

    arch: int
    pass_: str
    head_dim: int
    mask: str
    group: int  # query heads a key head
    seqlen: int
    fa4: float
    fa2: float


class Slower(msgspec.Struct, frozen=True, order=True):
    """Problems that FlashAttention-2 is faster at: ``fewest`` to ``most`` query heads a key head, ``shortest`` to ``longest`` keys."""

    arch: int
    pass_: str
    head_dim: int
    mask: str
    fewest: int
    most: int
    shortest: int
    longest: int


def read_table(path: Path) -> tuple[Measured, ...]:
    """Every measurement of a table."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return tuple(
        Measured(
            int(row["arch"]),
            row["kernel"],
            int(row["head_dim"]),
            row["mask"],
            int(row["heads_q"]) // int(row["heads_k"]),
            int(row["seqlen"]),
            float(row["fa4"]),
            float(row["fa2"]),
        )
        for row in csv.DictReader(lines)
    )


def slower(measured: Iterable[Measured]) -> Iterator[Slower]:
    """Ranges of lengths, each around lengths that were measured and up to half way to their neighbours, by ratio.

    So are the ranges of query heads a key head: which kernels a backward pass has, and how much they add up, goes by those.
    Several problems of one kind and length count together, by the geometric mean.
    """
    ratios: dict[tuple[int, str, int, str], dict[int, dict[int, list[float]]]]
    ratios = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for one in measured:
        ratios[one.arch, one.pass_, one.head_dim, one.mask][one.group][one.seqlen].append(one.fa4 / one.fa2)
    for kind, by_group in sorted(ratios.items()):
        ranges = [(heads, list(_joined(by_group[group]))) for group, heads in _around(by_group)]
        for lengths, run in itertools.groupby(ranges, key=itemgetter(1)):
            heads = [heads for heads, _ in run]
            yield from (Slower(*kind, heads[0][0], heads[-1][1], *one) for one in lengths)


def _joined(by_length: Mapping[int, Sequence[float]]) -> Iterator[tuple[int, int]]:
    """The ranges of the lengths that are slower; those that touch are one."""
    around = _around(by_length)
    for is_slower, run in itertools.groupby(around, key=lambda one: math.prod(by_length[one[0]]) < 1):
        if is_slower:
            ranges = [bounds for _, bounds in run]
            yield ranges[0][0], ranges[-1][1]


def _around(numbers: Iterable[int]) -> list[tuple[int, tuple[int, int]]]:
    """Each number, in order, with the range that it stands for; what is half way belongs to the larger one."""
    known = sorted(numbers)
    between = [math.isqrt(a * b - 1) for a, b in itertools.pairwise(known)]
    return list(zip(known, zip([_FIRST, *(last + 1 for last in between)], [*between, _LAST], strict=True), strict=True))


def read_tables() -> dict[str, tuple[Measured, ...]]:
    """Every table."""
    return {kind: read_table(path) for kind, path in TABLES.items()}


def table_lines(tables: Mapping[str, Sequence[Measured]]) -> Iterator[str]:
    """Yield the macros of ``native/src/fa4/speed.cpp``: the architectures measured, and where fa4 is slower."""
    arches = sorted({one.arch for table in tables.values() for one in table})
    yield f"#define FA4_CONFIG_MEASURED(X) {' '.join(f'X({arch})' for arch in arches)}"
    rows = [
        f"X({one.arch}, {one.pass_}, {one.head_dim}, {one.mask}, {kind}, "
        f"{one.fewest}, {one.most}, {one.shortest}, {one.longest})"
        for kind, table in tables.items()
        for one in slower(table)
    ]
    yield " \\\n    ".join(["#define FA4_CONFIG_SLOWER(X)", *rows])
