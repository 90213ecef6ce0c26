"""Which family is the faster one: what was measured, and what the C layer makes its choice by.

Problems where FlashAttention-2 was measured to be faster are left to it.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.files.disk import write_atomic

TABLE = Path(__file__).with_name("speed.csv")
"""Written by ``flashdepot bench --tune FILE``; native/src/speed_table.cpp reads another one of its format."""

KINDS = ("dense", "packed", "cache")
"""How sequences lie, as native/src/problem.h names it: kernels have other tiles for each."""

_COLUMNS = ("arch", "kind", "kernel", "head_dim", "mask", "batch", "seqlen", "heads_q", "heads_k", "fa4", "fa2")

_FIRST, _LAST = 0, 2**31 - 1
"""Of a range that has no end on that side."""


class Measured(msgspec.Struct, frozen=True):
    """A problem on a GPU of an architecture such as 90, and the TFLOP/s of both families."""

    arch: int
    kind: str
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
    kind: str
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
            row["kind"],
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


def write_table(path: Path, source: str, measured: Iterable[Mapping[str, Any]]) -> None:
    """Write a table, or replace points of one: of other GPUs, and of other problems, it keeps them.

    :param source: which GPU measured, when, with what.
    :param measured: by the names of the columns, all of one architecture.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    new = {_key(row): row for row in measured}
    arch = next(iter(new))[0]
    before = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    rows = [*(new.pop(_key(row), row) for row in before), *new.values()]
    notes = [line for line in lines if line.startswith("#") and not line.startswith(f"# {arch}: ")] or [_NOTE]
    text = io.StringIO()
    print(*notes, f"# {arch}: {source}", sep="\n", file=text)
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


_NOTE = "# Which family is the faster one: TFLOP/s of both, by flashdepot bench --tune."


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Which problem a row is of, and on which architecture."""
    return tuple(str(row[name]) for name in _COLUMNS[:-2])


def slower(measured: Iterable[Measured]) -> Iterator[Slower]:
    """Ranges of lengths, each around lengths that were measured and up to half way to their neighbours, by ratio.

    So are the ranges of query heads a key head: which kernels a backward pass has, and how much they add up, goes by those.
    Several problems of one kind and length count together, by the geometric mean.
    """
    ratios: dict[tuple[int, str, str, int, str], dict[int, dict[int, list[float]]]]
    ratios = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for one in measured:
        ratios[one.arch, one.kind, one.pass_, one.head_dim, one.mask][one.group][one.seqlen].append(one.fa4 / one.fa2)
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


def table_lines(table: Sequence[Measured]) -> Iterator[str]:
    """Yield the macros of ``native/src/fa4/speed.cpp``: the architectures measured, and where fa4 is slower."""
    arches = sorted({one.arch for one in table})
    yield f"#define FA4_CONFIG_MEASURED(X) {' '.join(f'X({arch})' for arch in arches)}"
    rows = [
        f"X({one.arch}, {one.pass_}, {one.head_dim}, {one.mask}, {one.kind}, "
        f"{one.fewest}, {one.most}, {one.shortest}, {one.longest})"
        for one in sorted(slower(table), key=lambda one: KINDS.index(one.kind))
    ]
    yield " \\\n    ".join(["#define FA4_CONFIG_SLOWER(X)", *rows])
