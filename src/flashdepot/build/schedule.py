"""Which compilation starts next, when all will be done, and what each is expected to cost."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from flashdepot.errors import IntegrityError
from flashdepot.files.documents import read_record, write_record
from flashdepot.kernels import family_of
from flashdepot.model.recipe import FRONT_END, Action, Estimate, Recipe

OUT_OF_MEMORY_FACTOR = 1.5
OUT_OF_MEMORY_TRIES = 3


class Job(msgspec.Struct, frozen=True):
    """A compilation that waits or runs: its name, predicted CPU-seconds and predicted peak memory in bytes.

    ``by_itself`` is set after a compiler was killed for memory: the job then runs with no other next to it.
    ``tries`` counts those kills.
    """

    name: str
    seconds: float
    peak: int
    by_itself: bool = False
    tries: int = 0

    def after_out_of_memory(self) -> Job:
        """The same job with a higher prediction, to be run by itself."""
        peak = int(self.peak * OUT_OF_MEMORY_FACTOR)
        return replace(self, peak=peak, by_itself=True, tries=self.tries + 1)


class Capacity(msgspec.Struct, frozen=True):
    """How many jobs may run at once, and how many bytes their predicted peaks may sum to."""

    jobs: int
    memory: int

    @classmethod
    def next_to_others(cls, jobs: int, available: int) -> Capacity:
        """Of a machine with so many bytes available, of which a twentieth, at least 500 MB, stays free."""
        return cls(jobs, max(0, available - max(available // 20, 500_000_000)))


def next_job(waiting: Sequence[Job], running: Sequence[Job], capacity: Capacity) -> Job | None:
    """The job to start now: the longest whose predicted peak fits next to what runs; ``None`` when none does.

    A job that never fits is started when nothing else runs: it may succeed, and waiting would not make it smaller.
    """
    return _next_of(sorted(waiting, key=_longest_first), running, capacity)


def _next_of(order: Sequence[Job], running: Sequence[Job], capacity: Capacity) -> Job | None:
    """The same, of jobs with the longest first."""
    if not order or len(running) >= capacity.jobs:
        return None
    if any(job.by_itself for job in running):
        return None
    used = sum(job.peak for job in running)
    fitting = (job for job in order if not job.by_itself and used + job.peak <= capacity.memory)
    return next(fitting, None if running else order[0])


def _longest_first(job: Job) -> tuple[float, str]:
    return -job.seconds, job.name


class Outlook(msgspec.Struct, frozen=True):
    """An estimate of some jobs.

    :param jobs: their names.
    :param seconds: wall time until all are done.
    :param peak: the most bytes at one time, and ``memory`` those that may be used: one that needs more runs by itself.
    :param at_once: the most jobs at one time.
    """

    jobs: frozenset[str]
    seconds: float
    peak: int
    memory: int
    at_once: int


def foresee(waiting: Sequence[Job], running: Sequence[tuple[Job, float]], capacity: Capacity) -> Outlook:
    """Play the schedule through with the predictions.

    :param running: each running job with the seconds it has run.
    """
    clock, peak, at_once = 0.0, 0, 0
    left = sorted(waiting, key=_longest_first)
    ends: list[tuple[float, str, Job]] = []
    for job, elapsed in running:
        # A job that has outrun its prediction is expected to need a tenth of it more.
        heapq.heappush(ends, (max(job.seconds - elapsed, job.seconds * 0.1), job.name, job))
    while left or ends:
        while job := _next_of(left, [j for _, _, j in ends], capacity):  # type: ignore[assignment]
            left.remove(job)
            heapq.heappush(ends, (clock + job.seconds, job.name, job))
        peak = max(peak, sum(j.peak for _, _, j in ends))
        at_once = max(at_once, len(ends))
        clock = max(clock, heapq.heappop(ends)[0])
    return Outlook(frozenset(job.name for job in waiting), clock, peak, capacity.memory, at_once)


GB = 10**9

_Number = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
_Measurement = Annotated[list[_Number], msgspec.Meta(min_length=2, max_length=2)]
"""CPU-seconds and bytes, as :meth:`History.add` writes them; no compilation takes more."""

_NATIVE = Estimate(0.5, GB // 2)
"""Of a file of our C layer: 0.0 to 1.8 s, 0.4 s on average, with g++ 12 on 2 cores (2026-11-22)."""

C_LAYER_FILES = 48
"""What our C layer has for one family and Linux: 21 s of CPU time together (2026-11-27)."""

HOST_SIDE = Estimate(4.0, GB // 2)
"""Of the host side of a unit: 3.3 to 3.7 s on average, 6.9 s at most, on 32 cores (2026-11-22)."""


def c_layer() -> list[Job]:
    """What compiling our C layer usually costs."""
    return [Job(f"C layer {number}", _NATIVE.seconds, _NATIVE.peak) for number in range(C_LAYER_FILES)]


def link_seconds(units: int) -> float:
    """To link a library of so many units, pack its archive and describe it: 2 s of CPU time for two (2026-11-27)."""
    return 2.0 + 0.03 * units


def prior(action: Action, recipe: Recipe) -> Estimate:
    """The shipped expectation for one action of a recipe."""
    if action.unit is None:
        return HOST_SIDE if action.needs else _NATIVE
    family, features = family_of(action.unit.family), recipe.selection.features
    return family.estimate(action.unit, features, len(recipe.target.sass))


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
        """Write what was added, next to what other processes have written meanwhile.

        On a disk that is full or may not be written nothing happens: what was built is worth more than what it cost.
        """
        if self._new:
            with contextlib.suppress(OSError):
                write_record(self._path, {**_read(self._path), **self._new})
            self._new = {}


def _work(action: Action, recipe: Recipe) -> str:
    features = ",".join(sorted(f.value for f in recipe.selection.features))
    sass = ",".join(str(a) for a in recipe.target.sass)
    return "|".join([action.name, features, sass, FRONT_END, str(recipe.toolchain.cuda)])


def _read(path: Path) -> dict[str, list[float]]:
    with contextlib.suppress(OSError, IntegrityError, msgspec.ValidationError):
        return msgspec.convert(read_record(path), dict[str, _Measurement])
    return {}
