"""Which compilation starts next, and when all will be done. Pure: no clock, no process, no file."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

OUT_OF_MEMORY_FACTOR = 1.5
OUT_OF_MEMORY_TRIES = 3


class Job(msgspec.Struct, frozen=True):
    """A compilation that waits or runs: its name, predicted CPU-seconds and predicted peak memory in bytes.

    ``alone`` is set after a compiler was killed for memory: the job then runs with no other beside it.
    ``tries`` counts those kills.
    """

    name: str
    seconds: float
    peak: int
    alone: bool = False
    tries: int = 0

    def after_out_of_memory(self) -> Job:
        """The same job with a higher prediction, to be run alone."""
        peak = int(self.peak * OUT_OF_MEMORY_FACTOR)
        return replace(self, peak=peak, alone=True, tries=self.tries + 1)


class Capacity(msgspec.Struct, frozen=True):
    """How many jobs may run at once, and how many bytes their predicted peaks may sum to.

    ``ahead`` more may be begun than run: they wait where they will run, and there their memory is looked after.
    """

    jobs: int
    memory: int
    ahead: int = 0


def next_job(waiting: Sequence[Job], running: Sequence[Job], capacity: Capacity) -> Job | None:
    """The job to start now: the longest whose predicted peak fits beside what runs; ``None`` when none does.

    A job that fits nowhere is started when nothing else runs: it may succeed, and waiting would not make it smaller.
    """
    if capacity.ahead:
        order = sorted(waiting, key=_longest_first)
        return order[0] if order and len(running) < capacity.jobs + capacity.ahead else None
    if not waiting or len(running) >= capacity.jobs or any(job.alone for job in running):
        return None
    order = sorted(waiting, key=_longest_first)
    if not running:
        fitting = [job for job in order if job.peak <= capacity.memory and not job.alone]
        return (fitting or order)[0]
    used = sum(job.peak for job in running)
    return next((job for job in order if not job.alone and used + job.peak <= capacity.memory), None)


def _longest_first(job: Job) -> tuple[float, str]:
    return -job.seconds, job.name


class Outlook(msgspec.Struct, frozen=True):
    """What jobs come to.

    :param jobs: their names.
    :param seconds: wall time until all are done.
    :param peak: the most bytes at one time, and ``memory`` those that may be used: one that needs more runs alone.
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
    capacity = replace(capacity, ahead=0)
    clock, peak, at_once = 0.0, 0, 0
    left = list(waiting)
    ends: list[tuple[float, str, Job]] = []
    for job, elapsed in running:
        # A job that has outrun its prediction is expected to need a tenth of it more.
        heapq.heappush(ends, (max(job.seconds - elapsed, job.seconds * 0.1), job.name, job))
    while left or ends:
        while job := next_job(left, [j for _, _, j in ends], capacity):  # type: ignore[assignment]
            left.remove(job)
            heapq.heappush(ends, (clock + job.seconds, job.name, job))
        peak = max(peak, sum(j.peak for _, _, j in ends))
        at_once = max(at_once, len(ends))
        clock = max(clock, heapq.heappop(ends)[0])
    return Outlook(frozenset(job.name for job in waiting), clock, peak, capacity.memory, at_once)


def remaining_seconds(waiting: Sequence[Job], running: Sequence[tuple[Job, float]], capacity: Capacity) -> float:
    """Wall seconds until everything is done; see :func:`foresee`."""
    return foresee(waiting, running, capacity).seconds
