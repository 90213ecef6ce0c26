"""The executor of a Dask cluster, as the engine sees it, and the worker that each action goes to."""

from __future__ import annotations

import hashlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.build.executor import Ended, Task
from flashdepot.build.farm.cluster import Cluster, FarmWorker, Result, connect
from flashdepot.build.farm.orders import (
    HOW_TO_START,
    Bundle,
    Done,
    Files,
    Lacks,
    Lost,
    Order,
    Refused,
    Site,
    encode,
    pack,
)
from flashdepot.build.inputs import InputDigests, PlaceNames, place_of
from flashdepot.build.schedule import Capacity
from flashdepot.errors import CompileError, FlashdepotError, IntegrityError, MissingToolError
from flashdepot.files.atomic import open_fresh
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels import family_of
from flashdepot.model.limits import Farm, Limits
from flashdepot.process.child import Cost


class FreeWorker(msgspec.Struct, frozen=True):
    """What a worker has left: slots, fewer than none when actions wait on it, and bytes of memory."""

    worker: FarmWorker
    slots: int
    memory: int


def free_workers(workers: Sequence[FarmWorker], given: Sequence[tuple[str, int]]) -> list[FreeWorker]:
    """What each worker has left.

    :param given: the address that each action was given to, and the memory that it is expected to take.
    """
    held = {worker.address: [memory for address, memory in given if address == worker.address] for worker in workers}
    return [FreeWorker(w, w.slots - len(held[w.address]), w.memory - sum(held[w.address])) for w in workers]


def choose_worker(free: Sequence[FreeWorker], memory: int, *, alone: bool, ahead: int) -> FreeWorker | None:
    """The worker with most left for an action, ``None`` when it has to wait here.

    :param alone: it needs a worker for itself, and waits there until that is free.
    :param ahead: how many actions more than a worker runs may wait on it.
    """

    def is_able(one: FreeWorker) -> bool:
        """Whether it fits next to the others; what waits for a slot gets the memory of the one before it."""
        if alone or one.slots <= 0:
            return one.worker.memory >= memory and (alone or (one.slots + ahead > 0 and one.memory > -memory))
        return one.memory >= memory

    return max(filter(is_able, free), key=lambda one: (one.slots, one.memory), default=None)


_AGENTS_LOST = 4
"""How often an action is begun again because the agent that had it ended; Dask gives up a task as often."""

_LACKED = 1000
"""How often an action may meet a worker that has not got the sources yet, before something must be wrong."""

_BEGUN_AGAIN = 5.0
"""Seconds after the death of a worker in which Dask begins again what that had."""

_WITHOUT_ROOM = 60.0
"""Seconds that an action waits when no worker that is there could ever run it."""


@dataclass
class _Running:
    """An action on the farm. ``place`` is the address of the worker that it was given to, empty while it waits for one."""

    task: Task
    memory: int
    order: bytes
    submitted: float = 0.0
    lacked: int = 0
    lost: int = 0
    started: float | None = None
    worker: str = ""
    place: str = ""
    orphaned: float | None = None


@dataclass
class FarmExecutor:
    """Runs actions on the workers of a cluster, and takes only what was compiled of the bytes that are here.

    ``sources`` are the files of each place that workers get from here, by name. ``site`` lacks only their bundles.
    Actions wait here, in the order in which they were begun, for a worker with a free slot and memory left. While many
    wait, each worker has one more than it runs, so that no slot waits for this machine.
    """

    farm: Farm
    site: Site
    sources: Mapping[str, Files]
    places: PlaceNames
    limits: Limits
    work: Path
    note: Callable[[str], None]
    _running: dict[str, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inputs = InputDigests(self.places)
        self._cluster: Cluster | None = None
        self._bundles: dict[str, Bundle] = {}
        self._packed_site = b""
        self._delivered: dict[str, float] = {}
        self._held: dict[str, int] = {}
        self._known: set[str] = set()
        self._roomless: float | None = None

    def prepare(self) -> None:
        """Connect, see that the workers can do the work, and put together what they get from here."""
        self._inputs.look(folder for name, folder in self.places.places if name in self.sources)
        self._cluster = connect(self.farm.address)
        self._cluster.require_same()
        self._known = {worker.address for worker in self._cluster.workers()}
        packed = {place: pack(files) for place, files in self.sources.items()}
        self._bundles = {bundle.digest: bundle for bundle in packed.values()}
        digests = {place: bundle.digest for place, bundle in packed.items()}
        self._packed_site = encode(replace(self.site, sources=digests))
        self._cluster.deliver(sorted(self._known), self._bundles.values())

    def capacity(self) -> Capacity:
        """What all workers have together; as many actions again wait here."""
        slots, memory = self.farm.slots, self.farm.memory
        if self._cluster is not None:
            workers = self._cluster.workers()
            slots, memory = sum(worker.slots for worker in workers), sum(worker.memory for worker in workers)
        jobs = max(1, min(slots, self.limits.jobs or slots))
        return Capacity(jobs, memory, ahead=0 if self.limits.jobs else jobs)

    def start(self, task: Task) -> None:
        """Give a task to the cluster; :raises MissingToolError: when no worker has the memory that it is expected to take."""
        largest = max((worker.memory for worker in self._connected.workers()), default=0)
        if task.peak > largest > 0 and not task.alone:
            raise self._no_room(task, task.peak, largest)
        memory = largest or task.peak if task.alone else task.peak
        made = {word: path.read_bytes() for word, path in task.made.items()}
        order = encode(Order(task.action, made))
        self._running[task.action.name] = _Running(task, memory, order)
        self._hand_out()

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Wait for the first result, and take those that came with it."""
        found = []
        for result in self._connected.results(seconds):
            self._hear()
            running = self._running.get(result.name)
            if running is not None and (ended := self._take(running, result)) is not None:
                found.append(ended)
        self._hear()
        self._see_who_left()
        self._hand_out()
        self._require_room()
        return found

    def release(self, ended: Ended) -> None:
        """Remove what a worker handed over."""
        ended.output.unlink(missing_ok=True)

    def elapsed(self, name: str) -> float:
        """The seconds since a worker began the action; 0 while it waits for one, and once it has ended."""
        running = self._running.get(name)
        return time.monotonic() - running.started if running and running.started is not None else 0.0

    def memory(self) -> int:
        """What compilers held at the workers' last look."""
        return sum(self._held.values())

    def digest(self, name: str) -> str | None:
        """The digest of a file of this machine: what workers compile must have the same."""
        return self._inputs.digest(name)

    def stop(self) -> None:
        """Cancel what runs, end every compiler on the workers, and leave the cluster."""
        if self._cluster is not None:
            self._cluster.end()
        for running in self._running.values():
            running.task.lock.release()
        self._running.clear()

    @property
    def _connected(self) -> Cluster:
        assert self._cluster is not None, "the engine prepares before it starts anything"  # noqa: S101
        return self._cluster

    def _hand_out(self) -> None:
        """Give to workers what waits, as far as they have room."""
        waiting = [running for running in self._running.values() if not running.place]
        if not waiting:
            return
        free = free_workers(self._connected.workers(), [(r.place, r.memory) for r in self._running.values()])
        for number, running in enumerate(waiting):
            many = len(waiting) - number > sum(one.worker.slots for one in free) / 2
            chosen = choose_worker(free, running.memory, alone=running.task.alone, ahead=1 if many else 0)
            if chosen is not None:
                self._submit(running, chosen.worker.address)
                left = replace(chosen, slots=chosen.slots - 1, memory=chosen.memory - running.memory)
                free[free.index(chosen)] = left

    def _submit(self, running: _Running, place: str) -> None:
        running.submitted = time.monotonic()
        running.started = None
        running.place = place
        name = running.task.action.name
        self._connected.submit(name, self._packed_site, running.order, running.memory, place)

    def _take(self, running: _Running, result: Result) -> Ended | None:
        """What the engine is given of a result; ``None`` when the action was begun again."""
        answer, name = result.answer, result.name
        if isinstance(answer, Lacks) and running.lacked < _LACKED:
            running.lacked += 1
            if self._delivered.get(result.address, 0) <= running.submitted:
                wanted = [self._bundles[digest] for digest in answer.bundles if digest in self._bundles]
                self._connected.deliver([result.address], wanted)
                self._delivered[result.address] = time.monotonic()
            self._submit(running, result.address)
            return None
        error = result.error
        if isinstance(answer, Lost):
            running.lost += 1
            worker = result.worker or running.worker
            if running.lost < _AGENTS_LOST:
                self.note(f"{name}: the worker {worker}, or flashdepot on it, has gone; compiling it again.")
                running.place = ""
                return None
            error = CompileError(
                f"{name}: flashdepot ended {running.lost} times while workers compiled it, the last time on {worker}.",
                hint="The worker's log says why. Most often a machine ran out of memory: start workers that declare less "
                "memory than they have, or leave out large units: --head-dims 64,128",
            )
        elif isinstance(answer, Lacks):
            error = FlashdepotError(f"{name}: the worker {result.worker} does not take the sources.")
        elif isinstance(answer, Refused):
            refused = f"The worker {result.worker} cannot work for this build: {answer.reason.rstrip('.')}."
            raise MissingToolError(refused, hint=answer.hint)
        del self._running[name]
        if not isinstance(answer, Done) or error is not None:
            return Ended(running.task, Cost(1, 0, 0, 0), self._output(running.task), None, result.worker, error)
        return self._handed_over(running.task, answer, result.worker)

    def _handed_over(self, task: Task, done: Done, worker: str) -> Ended:
        """What a worker made, as a file, once its bytes and all that it was made of are verified."""
        with open_fresh(task.log) as log:
            log.write(done.log.encode(errors="replace"))
        output = self._output(task)
        error = None
        if done.cost.status == 0:
            output.write_bytes(done.output)
            error = next(self._wrongs(task, done, worker), None)
        return Ended(task, done.cost, output, done.inputs, worker, error)

    def _output(self, task: Task) -> Path:
        return self.work / f"{task.action.name}.handed{task.action.suffix}"

    def _wrongs(self, task: Task, done: Done, worker: str) -> Iterator[FlashdepotError]:
        name = task.action.name
        if (found := hashlib.sha256(done.output).hexdigest()) != done.digest:
            yield IntegrityError(
                f"{name}: what the worker {worker} made has SHA-256 {done.digest}, and what arrived has {found}.",
                hint="Run the same command again: what arrived whole is kept.",
            )
        for file, digest in (done.inputs or {}).items():
            if not task.action.ignores(file) and (here := self.digest(file)) != digest:
                yield IntegrityError(
                    f"{name}: the worker {worker} read {file} with SHA-256 {digest}, and here it has "
                    f"{here or 'no such file'}.",
                    hint="A worker must not use files of its own machine. Was a source changed while it was compiled? "
                    "Then run the same command again.",
                )

    def _hear(self) -> None:
        """Take in what agents answered."""
        events = self._connected.events
        while not events.empty():
            try:
                event = events.get_nowait()
            except queue.Empty:
                return
            worker = event.worker
            if event.kind == "memory":
                self._held[worker] = event.bytes
            elif event.kind == "note":
                self.note(f"{worker}: {event.text}")
            elif (running := self._running.get(event.name)) is not None:
                if running.started is not None:
                    self.note(f"{event.name}: the worker {running.worker} has gone; {worker} compiles it again.")
                running.started, running.worker = time.monotonic(), worker
                found = (known.address for known in self._connected.workers() if known.name == worker)
                running.place = next(found, running.place)

    def _see_who_left(self) -> None:
        now = {worker.address: worker for worker in self._connected.workers()}
        for address in self._known - set(now):
            self._held.clear()  # by name, which may differ from the address: the others tell theirs again
            self.note(f"A worker has gone: {address}.")
        for address in set(now) - self._known:
            self.note(f"A worker has joined: {address}, {now[address].slots} at once.")
        self._known = set(now)
        for running in self._running.values():
            self._see_if_orphaned(running)

    def _see_if_orphaned(self, running: _Running) -> None:
        """Dask gives what a dead worker had to any other one: unless that begins soon, it has much to do or no room."""
        if not running.place or running.place in self._known:
            running.orphaned = None
        elif running.orphaned is None:
            running.orphaned = time.monotonic()
        elif time.monotonic() - running.orphaned > _BEGUN_AGAIN and running.lost < _AGENTS_LOST:
            self._connected.take_back(running.task.action.name)
            running.lost += 1
            running.place, running.orphaned = "", None

    def _require_room(self) -> None:
        """:raises MissingToolError: when something has waited long for a worker that is not there."""
        largest = max((worker.memory for worker in self._connected.workers()), default=0)
        without = next((r for r in self._running.values() if r.memory > largest), None)
        if without is None:
            self._roomless = None
            return
        if self._roomless is None:
            self._roomless = time.monotonic()
            self.note(f"{without.task.action.name} waits for a worker with {without.memory / 1e9:.1f} GB.")
        if time.monotonic() - self._roomless > _WITHOUT_ROOM:
            raise self._no_room(without.task, without.memory, largest)

    def _no_room(self, task: Task, memory: int, largest: int) -> MissingToolError:
        has = (
            f"none of the farm's workers declares more than {largest / 1e9:.1f} GB" if largest else "no worker is left"
        )
        start = HOW_TO_START.replace("ADDRESS", self._connected.address).replace("32e9", f"{-(-memory // 10**9)}e9")
        return MissingToolError(
            f"{task.action.name} is expected to take {memory / 1e9:.1f} GB, and {has}.",
            hint=f"What was compiled is kept. Start a worker with enough ({start}), or leave out large units: "
            "--head-dims 64,128",
        )


def handed_out(trees: Mapping[str, PlainFiles], own: Mapping[str, Path]) -> dict[str, Files]:
    """The files that workers get from here, by place and name: of source trees all that a compiler can reach.

    :param trees: source trees by the names of their families.
    :param own: folders by place.
    """
    found = {place_of(name): (files, family_of(name).sources.layout.sources(files)) for name, files in trees.items()}
    found |= {place: (PlainFiles(folder), ("",)) for place, folder in own.items()}
    return {
        place: {name: partial(files.read, name) for name in files.below(*tops)}
        for place, (files, tops) in found.items()
    }


def survey(farm: Farm) -> Farm:
    """The same farm with what its workers have together now; raises as :func:`connect` does, and when it has none."""
    cluster = connect(farm.address)
    try:
        workers = cluster.require_workers()
        return Farm(farm.address, sum(w.slots for w in workers), sum(w.memory for w in workers))
    finally:
        cluster.end()
