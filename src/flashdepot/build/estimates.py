"""What a compilation is expected to cost: shipped measurements to begin with, then what was seen on this machine."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flashdepot.build.compilation import Compilation
from flashdepot.errors import IntegrityError
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import ALL_FEATURES, Feature, Unit
from flashdepot.system.files import read_json, write_json

GB = 10**9

_FIXED_SECONDS = 25.0
"""What every unit pays for its templates before the first kernel instance."""

_LEFT_OUT = 0.7
"""A feature that is left out takes this share of the rest with it (five left out: 128 s became 44 s)."""

_MORE_ARCHITECTURES = 0.22
"""What one more ``ptxas`` run costs, as a share of the unit with one architecture."""


@dataclass(frozen=True)
class Estimate:
    """CPU-seconds, and the peak resident memory in bytes of the largest process of one compilation."""

    seconds: float
    peak: int


_NATIVE = Estimate(4.0, GB // 2)
_UNKNOWN = Estimate(200.0, 7 * GB)


@cache
def _measured() -> Mapping[str, Estimate]:
    """``unit_costs.csv``: all features, one architecture, nvcc 13.0.88, flash-attn 2.8.3.post2, 16-core machine."""
    with Path(__file__).with_name("unit_costs.csv").open(newline="") as file:
        return {
            row["translation_unit"]: Estimate(float(row["cpu_seconds"]), int(float(row["peak_rss_gb"]) * GB))
            for row in csv.DictReader(file)
        }


def costs(units: Iterable[Unit] | None = None) -> Sequence[Estimate]:
    """What each of some units costs with all features and one architecture; ``None`` for all of a full build."""
    return tuple(_measured().values() if units is None else map(_cost, units))


def _cost(unit: Unit) -> Estimate:
    return _measured().get(unit.name.removesuffix("_sm80")) or _nearest(unit)


def prior(unit: Unit | None, recipe: Recipe) -> Estimate:
    """The shipped expectation for one compilation of a recipe."""
    if unit is None:
        return _NATIVE
    return expected(unit, recipe.selection.features, len(recipe.target.sass), recipe.front_end)


def expected(unit: Unit, features: frozenset[Feature], architectures: int, front_end: str) -> Estimate:
    """The shipped expectation for a unit with some features, for a number of architectures."""
    measured = _cost(unit)
    left_out = len(ALL_FEATURES - features)
    kernels = max(0.0, measured.seconds - _FIXED_SECONDS) * _LEFT_OUT**left_out
    one = _FIXED_SECONDS + kernels
    factor = 1 + (architectures - 1) * (_MORE_ARCHITECTURES if front_end == "shared" else 1.0)
    return Estimate(one * factor, measured.peak)


def _nearest(unit: Unit) -> Estimate:
    """A unit that was never measured (head dim 160): the next larger head dim of the same kind."""
    larger = [
        (candidate.head_dim, estimate)
        for name, estimate in _measured().items()
        if (candidate := Unit.parse(f"{name}_sm80"))
        and (candidate.pass_, candidate.dtype, candidate.causal) == (unit.pass_, unit.dtype, unit.causal)
        and candidate.head_dim >= unit.head_dim
    ]
    return min(larger)[1] if larger else _UNKNOWN


class History:
    """What compilations cost on this machine, kept in one file of the depot. A lost file costs accuracy, no more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[str, list[float]] = _read(path)
        self._new: dict[str, list[float]] = {}

    def estimate(self, compilation: Compilation, recipe: Recipe) -> Estimate:
        """The last measurement of the same work here, else the shipped expectation."""
        seen = self._seen.get(_work(compilation, recipe))
        if seen is None:
            return prior(compilation.unit, recipe)
        return Estimate(seen[0], int(seen[1]))

    def add(self, compilation: Compilation, recipe: Recipe, seconds: float, peak: int) -> None:
        """Remember a measurement; :meth:`save` writes it."""
        if peak > 0:
            self._new[_work(compilation, recipe)] = [round(seconds, 2), peak]

    def save(self) -> None:
        """Write what was added, beside what other processes have written meanwhile."""
        if self._new:
            write_json(self._path, {**_read(self._path), **self._new})
            self._new = {}


def _work(compilation: Compilation, recipe: Recipe) -> str:
    features = ",".join(sorted(f.value for f in recipe.selection.features))
    sass = ",".join(str(a) for a in recipe.target.sass)
    return "|".join([compilation.name, features, sass, recipe.front_end, str(recipe.toolchain.cuda)])


def _read(path: Path) -> dict[str, list[float]]:
    try:
        data = read_json(path)
    except (FileNotFoundError, IntegrityError):
        return {}
    return data if isinstance(data, dict) else {}
