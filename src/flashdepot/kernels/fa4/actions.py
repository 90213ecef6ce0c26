"""How FlashAttention-4 is compiled: one run of the compile worker a kernel and architecture.

Problems where FlashAttention-2 was measured to be faster are left to it by the C layer.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import msgspec

from flashdepot.files.atomic import sha256_file
from flashdepot.kernels.actions import c_string
from flashdepot.kernels.fa4.sources import KERNELS
from flashdepot.kernels.fa4.units import HOSTS, NAME, Kernel, kernels_of, unit_name
from flashdepot.model.codec import digest_of
from flashdepot.model.recipe import Action, Recipe, Tool
from flashdepot.model.selection import Feature, Selection
from flashdepot.model.target import Architecture
from flashdepot.toolchain import cute_dsl
from flashdepot.upstream import Identified

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


WORKER = Path(__file__).with_name("worker")
"""The folder of the compile worker."""

_OUTPUTS = ("{output}", "{depfile}")


def flags(*_: object, **__: object) -> tuple[str, ...]:
    """What every kernel is compiled with and by, and the measurements by which calls are given to it."""
    # What decides how a kernel is made: the tiles here, and the worker.
    sources = {file.relative_to(WORKER.parent).as_posix(): sha256_file(file) for file in WORKER.parent.rglob("*.py")}
    return (
        f"cute-dsl {cute_dsl.provided_version()} {cute_dsl.identity()}",
        f"kernels {digest_of(sources)}",
        " ".join(["speed", *map(sha256_file, TABLES.values())]),
    )


def actions(recipe: Recipe, *_: object) -> Iterator[Action]:
    """One run of the worker for each kernel and architecture."""
    tools = (Tool("cute-dsl", str(cute_dsl.provided_version()), cute_dsl.identity()),)
    triple, cpu = HOSTS[str(recipe.target.platform)]
    selected = {unit.name: unit for unit in recipe.selection.units if unit.family == NAME}
    for kernel in kernels_of(selected, recipe.target.sass):
        name = f"{NAME}_sm{kernel.arch}_{kernel.variant.name}"
        job = {**kernel.job, "arch": f"sm_{kernel.arch}", "triple": triple, "cpu": cpu, "prefix": name}
        worker = ("{python}", "-I", "-S", "-X", "pycache_prefix={work}/pycache", "{fa4_worker}")
        arguments = (*worker, "{cute_dsl}", "{fa4}", json.dumps(job, sort_keys=True))
        unit = selected.get(unit_name(kernel.arch, kernel.variant))
        yield Action(name, NAME, KERNELS, arguments, tools, unit=unit, outputs=_OUTPUTS, resident=kernel.arch)


def config_lines(selection: Selection, sass: Iterable[Architecture], source: Identified) -> Iterator[str]:
    """Yield the macros that the C layer makes its table of units from (native/src/fa4/units.cpp)."""
    kernels = kernels_of((unit.name for unit in selection.units if unit.family == NAME), sass)
    arches = dict.fromkeys(kernel.arch for kernel in kernels)
    yield f'#define FA4_CONFIG_UPSTREAM "{c_string(source.id.version)}"'
    yield f"#define FA4_CONFIG_SASS {', '.join(arch[:-1] for arch in arches)}"
    yield from (
        f"#define FA4_CONFIG_HAS_{feature.value.upper()} {int(feature in selection.features)}" for feature in Feature
    )
    yield " \\\n    ".join(["#define FA4_CONFIG_UNITS(X)", *map(_row, kernels)])
    yield from table_lines({kind: read_table(path) for kind, path in TABLES.items()})


def _row(kernel: Kernel) -> str:
    variant = kernel.variant
    tile_m, tile_n = kernel.tiles
    flags = f"{int(variant.softcap)}, {int(variant.several_heads)}, {int(kernel.walks)}, {kernel.shortest}"
    head_dims = f"{variant.head_dim}, {variant.head_dim_v}"
    what = f"{variant.kernel}, {variant.dtype}, {head_dims}, {variant.layout}, {variant.mask}, {flags}"
    return f"X({kernel.arch[:-1]}, {kernel.arch[-1]}, {what}, {tile_m}, {tile_n}, {variant.name})"
