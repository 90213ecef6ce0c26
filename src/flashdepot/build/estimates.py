"""What a compilation is expected to cost: shipped measurements to begin with, then what was seen on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from flashdepot.errors import IntegrityError
from flashdepot.families import default_family, family_of
from flashdepot.model.action import Action, Estimate
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import ALL_FEATURES, Unit
from flashdepot.system.records import read_record, write_record

GB = 10**9

_LARGEST = 1e15
"""No compilation takes so many seconds or bytes."""

_NATIVE = Estimate(0.5, GB // 2)
"""Of a file of our C layer: 0.0 to 1.8 s, 0.4 s on average, with g++ 12 on 2 cores (2026-11-22)."""

_HOST_SIDE = Estimate(4.0, GB // 2)
"""Of the host side of a unit: 3.3 to 3.7 s on average, 6.9 s at most, on 32 cores (2026-11-22)."""


def costs(units: Iterable[Unit] | None = None) -> Sequence[Estimate]:
    """What each of some units costs with all features and one architecture; ``None`` for all of a full build of the default family."""
    asked = default_family().full() if units is None else units
    return [family_of(unit.family).estimate(unit, ALL_FEATURES, 1, "shared") for unit in asked]


def prior(action: Action, recipe: Recipe) -> Estimate:
    """The shipped expectation for one action of a recipe."""
    if action.unit is None:
        return _HOST_SIDE if action.needs else _NATIVE
    family, features = family_of(action.unit.family), recipe.selection.features
    return family.estimate(action.unit, features, len(recipe.target.sass), recipe.front_end)


class History:
    """What compilations cost on this machine, kept in one file of the depot. A lost file costs accuracy, no more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[str, list[float]] = _read(path)
        self._new: dict[str, list[float]] = {}

    def estimate(self, action: Action, recipe: Recipe) -> Estimate:
        """The last measurement of the same work here, else the shipped expectation."""
        seen = self._seen.get(_work(action, recipe))
        if seen is None:
            return prior(action, recipe)
        return Estimate(seen[0], int(seen[1]))

    def add(self, action: Action, recipe: Recipe, seconds: float, peak: int) -> None:
        """Remember a measurement; :meth:`save` writes it."""
        if peak > 0:
            self._new[_work(action, recipe)] = [round(seconds, 2), peak]

    def save(self) -> None:
        """Write what was added, beside what other processes have written meanwhile.

        On a disk that is full or may not be written nothing happens: what was built is worth more than what it cost.
        """
        if self._new:
            with contextlib.suppress(OSError):
                write_record(self._path, {**_read(self._path), **self._new})
            self._new = {}


def _work(action: Action, recipe: Recipe) -> str:
    features = ",".join(sorted(f.value for f in recipe.selection.features))
    sass = ",".join(str(a) for a in recipe.target.sass)
    return "|".join([action.name, features, sass, recipe.front_end, str(recipe.toolchain.cuda)])


def _read(path: Path) -> dict[str, list[float]]:
    try:
        data = read_record(path)
    except (OSError, IntegrityError):
        return {}
    return {name: row for name, row in data.items() if _is_measurement(row)} if isinstance(data, dict) else {}


def _is_measurement(row: object) -> bool:
    """Whether a value is CPU-seconds and bytes, as :meth:`History.add` writes them."""
    return (
        isinstance(row, list)
        and [type(value) in {int, float} for value in row] == [True, True]
        and all(0 <= value < _LARGEST for value in row)
    )
