"""The executor of a Dask cluster: actions run on its workers (``farm_worker``), by the same code as on this machine.

Dask starts tasks, moves sources and results, counts memory, and begins again what a dead worker had. It is not left to
choose a worker: it spreads tasks by how long such ones took, and knows nothing of compilers.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from flashdepot.build import farm_worker
from flashdepot.build.cluster import Cluster, FarmWorker, connect
from flashdepot.build.engine import Ended, Task
from flashdepot.build.farm_worker import RESOURCE, Done, Order, Refused, Site
from flashdepot.build.inputs import InputDigests, PlaceNames, place_of
from flashdepot.build.schedule import Capacity
from flashdepot.errors import FlashdepotError, IntegrityError, MissingToolError
from flashdepot.files.directory import PlainFiles
from flashdepot.files.disk import open_fresh
from flashdepot.kernels import family_of
from flashdepot.model.limits import Farm, Limits
from flashdepot.process.child import Cost

if TYPE_CHECKING:
    from distributed import Future

Files = Mapping[str, Callable[[], bytes]]
"""Files by name, and how to read each."""

_TRIES = 4
"""How often an action is begun again because its result was lost; Dask gives up a task as often."""

_WITHOUT_ROOM = 60.0
"""Seconds that an action waits when no worker that is there could ever run it."""


def choose_worker(
    workers: Sequence[FarmWorker], given: Sequence[tuple[str, int]], memory: int, *, by_itself: bool
) -> FarmWorker | None:
    """The worker with most left for an action; ``None`` when it has to wait.

    :param given: the address that each action was given to, and the memory that it is expected to take.
    :param by_itself: it needs a worker for itself.
    """
    best, most = None, (0, 0)
    for worker in workers:
        held = [taken for address, taken in given if address == worker.address]
        left = (worker.slots - len(held), worker.memory - sum(held))
        if left[0] > 0 and left[1] >= memory and not (by_itself and held) and left > most:
            best, most = worker, left
    return best


@dataclass
class _Running:
    """An action on the farm. ``place`` is the address of the worker that it was given to, empty while it waits for one."""

    task: Task
    memory: int
    order: Order
    future: Future | None = None
    place: str = ""
    started: float | None = None
    lost: int = 0


@dataclass
class FarmExecutor:
    """Runs actions on the workers of a cluster, and takes only what was compiled of the bytes that are here.

    ``sources`` are the files of each place that workers get from here, by name; ``site`` lacks only those. Actions wait
    here, in the order in which they were begun, for a worker with a free slot and memory left.
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
        self._results: queue.SimpleQueue[tuple[str, Future]] = queue.SimpleQueue()
        self._held: dict[str, int] = {}
        self._known: set[str] = set()
        self._roomless: float | None = None

    def prepare(self) -> None:
        """Connect, see that the workers can do the work, and give them the sources."""
        self._inputs.look(folder for name, folder in self.places.places if name in self.sources)
        self._cluster = connect(self.farm.address)
        self._cluster.require_same()
        self._known = {worker.address for worker in self._cluster.workers()}
        read = {place: {name: read() for name, read in files.items()} for place, files in self.sources.items()}
        self._site = self._cluster.submit(
            farm_worker.arrive, replace(self.site, sources=read), workers=list(self._known)
        )

    def capacity(self) -> Capacity:
        """What all workers have together."""
        slots, memory = self.farm.slots, self.farm.memory
        if self._cluster is not None:
            workers = self._cluster.workers()
            slots, memory = sum(worker.slots for worker in workers), sum(worker.memory for worker in workers)
        return Capacity(max(1, min(slots, self.limits.jobs or slots)), memory)

    def start(self, task: Task) -> None:
        """Give a task to the cluster; :raises MissingToolError: when no worker has the memory that it is expected to take."""
        largest = self._connected.largest()
        if task.peak > largest > 0 and not task.by_itself:
            raise self._no_room(task, task.peak, largest)
        memory = largest or task.peak if task.by_itself else task.peak
        made = {word: path.read_bytes() for word, path in task.made.items()}
        order = Order(self._connected.session, task.action, made)
        self._running[task.action.name] = _Running(task, memory, order)
        self._hand_out()

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Wait for the first result, and take those that came with it."""
        found = []
        with contextlib.suppress(queue.Empty):
            name, future = self._results.get(timeout=seconds)
            while True:
                self._hear()
                running = self._running.get(name)
                if running is not None and running.future is future and (ended := self._take(running, name, future)):
                    found.append(ended)
                name, future = self._results.get_nowait()
        self._connected.require_running()
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
            self._cluster.end([running.future for running in self._running.values() if running.future is not None])
            self._cluster = None
        for running in self._running.values():
            running.task.lock.release()
        self._running.clear()

    @property
    def _connected(self) -> Cluster:
        assert self._cluster is not None, "the engine prepares before it starts anything"  # noqa: S101
        return self._cluster

    def _hand_out(self) -> None:
        """Give waiting actions to workers that have room."""
        for name, running in self._running.items():
            given = [(other.place, other.memory) for other in self._running.values() if other.place]
            workers = [] if running.place else self._connected.workers()
            worker = choose_worker(workers, given, running.memory, by_itself=running.task.by_itself)
            if worker is not None:
                running.place, running.started = worker.address, None
                running.future = self._connected.submit(
                    farm_worker.run_order,
                    self._site,
                    running.order,
                    resources={RESOURCE: running.memory},
                    workers=[worker.address],
                )
                running.future.add_done_callback(lambda done, name=name: self._results.put((name, done)))

    def _take(self, running: _Running, name: str, future: Future) -> Ended | None:
        """What the engine is given of a result; ``None`` when the action is begun again."""
        worker, answer = self._connected.result(name, future)
        if isinstance(answer, Refused):
            raise MissingToolError(
                f"The worker {worker} cannot compile for this build: {answer.reason.rstrip('.')}.", hint=answer.hint
            )
        if answer is None and running.lost < _TRIES:
            running.lost += 1
            running.place = ""
            self.note(f"{name}: a worker has gone; compiling it again.")
            return None
        del self._running[name]
        if isinstance(answer, Done):
            return self._handed_over(running.task, answer, worker)
        error = answer or FlashdepotError(f"{name}: its result was lost {running.lost} times.")
        return Ended(running.task, Cost(1, 0, 0, 0), self._output(running.task), None, worker, error)

    def _handed_over(self, task: Task, done: Done, worker: str) -> Ended:
        """What a worker made, as a file, once all that it was made of is verified."""
        with open_fresh(task.log) as log:
            log.write(done.log.encode(errors="replace"))
        output = self._output(task)
        error = None
        if done.cost.status == 0:
            output.write_bytes(done.output)
            error = self._wrong(task, done, worker)
        return Ended(task, done.cost, output, done.inputs, worker, error)

    def _output(self, task: Task) -> Path:
        return self.work / f"{task.action.name}.handed{task.action.suffix}"

    def _wrong(self, task: Task, done: Done, worker: str) -> FlashdepotError | None:
        for file, digest in (done.inputs or {}).items():
            if not task.action.ignores(file) and (here := self.digest(file)) != digest:
                return IntegrityError(
                    f"{task.action.name}: the worker {worker} read {file} with SHA-256 {digest}, and here it has "
                    f"{here or 'no such file'}.",
                    hint="A worker must not use files of its own machine. Was a source changed while it was compiled? "
                    "Then run the same command again.",
                )
        return None

    def _hear(self) -> None:
        """Read what workers report: what they have begun, the memory that it holds, and notes."""
        while not self._connected.events.empty():
            event = self._connected.events.get()
            worker = event["worker"]
            if event["kind"] == "memory":
                self._held[worker] = event["bytes"]
            elif event["kind"] == "note":
                self.note(f"{worker}: {event['text']}")
            elif (running := self._running.get(event["name"])) is not None:
                if running.started is not None:
                    self.note(f"{event['name']}: a worker has gone; {worker} compiles it again.")
                running.started = time.monotonic()
                running.place = next((w.address for w in self._connected.workers() if w.name == worker), running.place)

    def _see_who_left(self) -> None:
        now = {worker.address: worker for worker in self._connected.workers()}
        for address in self._known - set(now):
            self._held.clear()  # by name, which may differ from the address: the others tell theirs again
            self.note(f"A worker has gone: {address}.")
        for address in set(now) - self._known:
            self.note(f"A worker has joined: {address}, {now[address].slots} at once.")
        self._known = set(now)

    def _require_room(self) -> None:
        """:raises MissingToolError: when something has waited long for a worker that is not there."""
        largest = self._connected.largest()
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
        start = self._connected.how_to_start.replace("32e9", f"{-(-memory // 10**9)}e9")
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
