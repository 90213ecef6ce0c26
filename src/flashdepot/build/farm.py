"""The executor of a Dask cluster: actions run on its workers (``farm_worker``), by the same code as on this machine.

Dask starts tasks, moves sources and results, counts memory, and begins again what a dead worker had. It is not left to
choose a worker: it spreads tasks by how long such ones took, and knows nothing of compilers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import secrets
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from flashdepot.build import farm_worker
from flashdepot.build.engine import Ended, Task
from flashdepot.build.farm_worker import RESOURCE, Done, Order, Refused, Site
from flashdepot.build.inputs import InputDigests, PlaceNames, place_of
from flashdepot.build.schedule import Capacity
from flashdepot.errors import (
    CompileError,
    FlashdepotError,
    IncompatibleError,
    IntegrityError,
    MissingToolError,
    NetworkError,
    UsageError,
)
from flashdepot.files.atomic import open_fresh, read_json
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels import family_of
from flashdepot.model.limits import Farm, Limits
from flashdepot.process.child import Cost

if TYPE_CHECKING:
    from distributed import Client, Future

Files = Mapping[str, Callable[[], bytes]]
"""Files by name, and how to read each."""

OPEN = "open+"
"""Before an address or file: a farm whose network is its protection."""

_HOW_TO_START = "dask worker ADDRESS --nthreads 8 --resources memory=32e9"

_CONNECTS_WITHIN = 10.0
_ANSWERS_WITHIN = 30.0
_DELIVERS_WITHIN = 300.0
_ENDS_WITHIN = 6.0
_NO_ANSWER = (OSError, TimeoutError, asyncio.TimeoutError)  # the last two are one from Python 3.11 on

_LOOK = 2.0
"""Seconds between two checks of which workers there are."""

_TRIES = 4
"""How often an action is begun again because its result was lost; Dask gives up a task as often."""

_WITHOUT_ROOM = 60.0
"""Seconds that an action waits when no worker that is there could ever run it."""


class FarmWorker(msgspec.Struct, frozen=True):
    """A worker: what people call it, how many tasks it runs at once, and the bytes of memory that they have together."""

    address: str
    name: str
    slots: int
    memory: int


def choose_worker(
    workers: Sequence[FarmWorker], given: Sequence[tuple[str, int]], memory: int, *, alone: bool
) -> FarmWorker | None:
    """The worker with most left for an action; ``None`` when it has to wait.

    :param given: the address that each action was given to, and the memory that it is expected to take.
    :param alone: it needs a worker for itself.
    """
    best, most = None, (0, 0)
    for worker in workers:
        held = [taken for address, taken in given if address == worker.address]
        left = (worker.slots - len(held), worker.memory - sum(held))
        if left[0] > 0 and left[1] >= memory and not (alone and held) and left > most:
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
        if task.peak > largest > 0 and not task.alone:
            raise self._no_room(task, task.peak, largest)
        memory = largest or task.peak if task.alone else task.peak
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
        """Give to workers what waits, as far as they have room."""
        for name, running in self._running.items():
            given = [(other.place, other.memory) for other in self._running.values() if other.place]
            workers = [] if running.place else self._connected.workers()
            worker = choose_worker(workers, given, running.memory, alone=running.task.alone)
            if worker is not None:
                running.place, running.started = worker.address, None
                running.future = self._connected.submit(
                    farm_worker.carry_out,
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
                f"The worker {worker} cannot work for this build: {answer.reason.rstrip('.')}.", hint=answer.hint
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
            error = next(self._wrongs(task, done, worker), None)
        return Ended(task, done.cost, output, done.inputs, worker, error)

    def _output(self, task: Task) -> Path:
        return self.work / f"{task.action.name}.handed{task.action.suffix}"

    def _wrongs(self, task: Task, done: Done, worker: str) -> Iterator[FlashdepotError]:
        for file, digest in (done.inputs or {}).items():
            if not task.action.ignores(file) and (here := self.digest(file)) != digest:
                yield IntegrityError(
                    f"{task.action.name}: the worker {worker} read {file} with SHA-256 {digest}, and here it has "
                    f"{here or 'no such file'}.",
                    hint="A worker must not use files of its own machine. Was a source changed while it was compiled? "
                    "Then run the same command again.",
                )

    def _hear(self) -> None:
        """Take in what workers tell meanwhile: what they have begun, the memory that it holds, and notes."""
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


class Cluster:
    """A connection to a Dask cluster for one build, from :func:`connect`. ``events`` gets what workers tell."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._numbers = itertools.count()
        self._workers: tuple[FarmWorker, ...] = ()
        self._looked = -_LOOK
        self.session = f"flashdepot-{secrets.token_hex(6)}"
        self.how_to_start = _HOW_TO_START.replace("ADDRESS", address)
        self.address = address
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        client.subscribe_topic(self.session, lambda event: self.events.put(event[1]))

    def workers(self) -> tuple[FarmWorker, ...]:
        """The workers that declare memory, as they were two seconds ago at most; :raises NetworkError: without an answer."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            identity = self._client.scheduler.identity
            try:
                found = self._client.sync(identity, n_workers=-1, callback_timeout=_ANSWERS_WITHIN)
            except _NO_ANSWER as error:
                raise self._lost() from error
            self._workers = tuple(
                FarmWorker(address, str(row["name"]), row["nthreads"], int(row["resources"].get(RESOURCE, 0)))
                for address, row in found["workers"].items()
            )
            self._looked = now
        return tuple(worker for worker in self._workers if worker.memory)

    def largest(self) -> int:
        """The memory of the worker that has most."""
        return max((worker.memory for worker in self.workers()), default=0)

    def require_workers(self) -> tuple[FarmWorker, ...]:
        """The workers that there are, waiting a while for the first; :raises MissingToolError: when none can be used."""
        with contextlib.suppress(*_NO_ANSWER):
            self._client.wait_for_workers(1, timeout=_CONNECTS_WITHIN)
        useful = self.workers()
        if not useful:
            reason = (
                "none of its workers says how much memory compilers may use" if self._workers else "it has no worker"
            )
            raise MissingToolError(
                f"The farm {self.address} cannot compile: {reason}.",
                hint=f"Start workers, with their memory: {self.how_to_start}",
            )
        return useful

    def require_same(self) -> None:
        """See that every worker has this flashdepot and Python; :raises IncompatibleError: when one has not."""
        names = {worker.address: worker.name for worker in self.require_workers()}
        try:
            said = self._client.run(
                farm_worker.own_release, workers=list(names), on_error="return", callback_timeout=_DELIVERS_WITHIN
            )
        except _NO_ANSWER as error:
            raise self._lost() from error
        for address, theirs in said.items():
            other = isinstance(theirs, BaseException)
            seen = ("none", str(theirs)) if other else tuple(theirs)
            refused = farm_worker.refusal(seen, farm_worker.own_release())
            if refused is not None:
                reason = f"has no flashdepot that answers: {theirs}" if other else refused.reason
                raise IncompatibleError(f"The worker {names[address]} {reason}.", hint=refused.hint)

    def submit(self, function: Callable[..., Any], *arguments: object, workers: list[str], **options: Any) -> Future:
        """Begin a task on workers as soon as those have room; on another one when they have gone."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arguments of some MB
            key = (
                f"{function.__name__}-{self.session}-{next(self._numbers)}"  # the result of a used key is there at once
            )
            return self._client.submit(
                function, *arguments, key=key, workers=workers, allow_other_workers=True, pure=False, **options
            )

    def result(self, name: str, future: Future) -> tuple[str, Done | Refused | FlashdepotError | None]:
        """The worker and its answer, or why there is none; ``None`` for one that was lost with its worker.

        :raises NetworkError: when it was the scheduler that died.
        """
        from distributed import KilledWorker  # noqa: PLC0415  (of an extra)

        with contextlib.suppress(*_NO_ANSWER):
            try:
                if future.status not in {"cancelled", "lost"}:
                    worker, answer = future.result(timeout=_DELIVERS_WITHIN)
                    return worker, answer
            except KilledWorker as error:
                return "", CompileError(
                    f"{name}: {error.allowed_failures + 1} workers died one after another while they compiled it.",
                    hint="Look into the workers' logs. Most often a machine or a job ran out of memory: start workers "
                    "that declare less memory than they have, or leave out large units: --head-dims 64,128",
                )
            except _NO_ANSWER:
                raise
            except Exception as error:  # noqa: BLE001  (whatever Dask raises is this task's failure)
                return "", FlashdepotError(f"{name}: the farm could not run it: {error!r}")
        self.require_running()
        return "", None

    def require_running(self) -> None:
        """:raises NetworkError: when the scheduler does not answer any more."""
        if self._client.status != "running":
            raise self._lost()

    def end(self, futures: Sequence[Future] = ()) -> None:
        """Cancel tasks, end their compilers, and leave."""
        with contextlib.suppress(Exception):
            if self._client.status == "running" and futures:
                self._client.cancel(list(futures), force=True)
            if self._client.status == "running":
                self._client.run(farm_worker.end, self.session, on_error="ignore", callback_timeout=_ENDS_WITHIN)
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def _lost(self) -> NetworkError:
        return NetworkError(
            f"The scheduler {self.address} of the farm does not answer any more.",
            hint="Everything that was compiled is kept. Start the scheduler and the workers again and run the same "
            "command, or run it without --farm.",
        )


def connect(farm: str) -> Cluster:
    """Connect to the scheduler at an address, or to the one that a scheduler file names.

    :param farm: an address or a scheduler file, with :data:`OPEN` before it where it need not be encrypted.
    :raises UsageError: when it is neither encrypted nor on this machine.
    :raises MissingToolError: when the extra is not installed, or there is no scheduler file.
    :raises NetworkError: when nobody answers within ten seconds.
    """
    named = farm.removeprefix(OPEN)
    address = named if "://" in named else _address_in(Path(named))
    if named == farm and not _is_private(address):
        raise UsageError(
            f"The farm {address} is on a network, and what it says is not encrypted: anyone who reaches it can run programs "
            "on its workers, and may on this machine.",
            hint="Give Dask certificates, and name it as tls://HOST:8786. In a network that nobody else reaches: "
            f"--farm {OPEN}{shlex.quote(farm)}",
        )
    try:
        import distributed  # noqa: PLC0415  (of an extra)
    except ImportError as error:
        raise MissingToolError(
            "--farm needs Dask, and the package that speaks with it is not installed.",
            hint="Install it: pip install 'flashdepot[farm]'",
        ) from error
    for name in ("distributed", "tornado", "asyncio"):  # one display of progress: what matters our errors say
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that differ; require_same says which matter
            client = distributed.Client(address, timeout=_CONNECTS_WITHIN, set_as_default=False, name="flashdepot")
    except (*_NO_ANSWER, ValueError, ImportError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise NetworkError(
            f"No Dask scheduler answers at {address}: {reason}.",
            hint="Start one there ('dask scheduler', which prints its address) and look that no firewall is between; "
            "or compile on this machine: without --farm",
        ) from error
    return Cluster(client, address)


def _is_private(address: str) -> bool:
    """Whether nobody else on the network can hear or change what is said: it is encrypted, or stays on this machine."""
    scheme, _, place = address.partition("://")
    if scheme in {"tls", "wss", "inproc"}:
        return True
    with contextlib.suppress(ValueError):
        host = urlsplit(f"//{place}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    return False


def _address_in(path: Path) -> str:
    hint = f"It is what 'dask scheduler --scheduler-file {path}' writes. An address has a scheme: tcp://HOST:8786"
    try:
        return msgspec.convert(read_json(path)["address"], str)
    except FileNotFoundError:
        raise MissingToolError(f"There is no scheduler file {path}.", hint=hint) from None
    except (OSError, ValueError, KeyError, TypeError, FlashdepotError) as error:
        raise MissingToolError(f"{path} is not a scheduler file: {error}.", hint=hint) from error


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
