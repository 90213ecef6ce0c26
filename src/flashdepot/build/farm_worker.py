"""What Dask runs in a worker of a farm: actions, by the executor that a build on that machine has.

A build has one bench on each worker: the pinned compilers in the depot of the worker's user, and the sources that it brought.
A bench ends with its build, or once nobody has wanted anything of it for a while.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot import __version__
from flashdepot.build.engine import Ended, Task
from flashdepot.build.inputs import places, programs
from flashdepot.build.local import LocalExecutor, confined_environment
from flashdepot.depot import open_depot
from flashdepot.errors import FlashdepotError, NetworkError
from flashdepot.events import Download
from flashdepot.files.locks import try_lock_file
from flashdepot.host import runtime_facts
from flashdepot.kernels import provide
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action, Tool
from flashdepot.model.request import AnyCuda, CudaChoice
from flashdepot.model.target import Architecture, Version
from flashdepot.process.child import Cost, descendants_memory
from flashdepot.process.confinement import Confinement, confinement_here
from flashdepot.toolchain.choose import Toolchain, choose_toolchain, identify_toolchain

if TYPE_CHECKING:
    from distributed import Worker

RESOURCE = "memory"
"""The resource, in bytes, that a worker declares and that a task takes of it."""

_FILL = (
    "Give that machine the network, or its user a depot that has nvcc and zig: copy one there, or where the home is shared "
    "run 'flashdepot build --profile quick' once on a machine with the network. Then run the same command again."
)

_TICK = 0.02
"""Seconds between two checks of what has ended."""

_LOOK = 1.0
"""Seconds between two checks of the memory that compilers hold."""

_IDLE = 60.0
"""Seconds without an order after which a bench ends."""


def own_release() -> tuple[str, str]:
    """The flashdepot and the Python that run this, as far as both sides must agree: ``("1.0", "3.12")``."""
    return __version__, ".".join(platform.python_version_tuple()[:2])


class Site(msgspec.Struct, frozen=True):
    """What all orders of a build have in common.

    ``sources`` are files by place and name. ``cuda`` is the folder of the toolkit of another CUDA ``release`` than the
    pinned one, and empty for that. ``tools`` must compile. ``variables`` are those of the environment that change what
    they write: a worker has these values and no others.
    """

    families: tuple[str, ...]
    tools: tuple[Tool, ...]
    sass: tuple[Architecture, ...]
    variables: Mapping[str, str]
    cuda: str = ""
    release: str = ""
    confined: bool = False
    sources: Mapping[str, Mapping[str, bytes]] = {}
    made_by: tuple[str, str] = msgspec.field(default_factory=own_release)


class Order(msgspec.Struct, frozen=True):
    """One action to run, and the bytes of what the actions that it needs have made."""

    session: str
    action: Action
    made: Mapping[str, bytes]


class Done(msgspec.Struct, frozen=True):
    """An action that a worker has run: what :class:`~flashdepot.build.engine.Ended` says, with the bytes themselves."""

    cost: Cost
    log: str
    output: bytes = b""
    inputs: Mapping[str, str] | None = None


class Refused(msgspec.Struct, frozen=True):
    """A worker cannot work for this build at all: why, and what helps."""

    reason: str
    hint: str


Tell = Callable[[dict[str, Any]], None]


class _Bench:
    """What one build has on this worker."""

    def __init__(self, site: Site, tell: Tell) -> None:
        self._site = site
        self._tell = tell
        self._held = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._executor: LocalExecutor | None = None
        self._refused: Refused | None = None
        self._ended: dict[str, Ended] = {}
        self._running: set[str] = set()
        self._looked = 0.0
        self.idle_since = time.monotonic()

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    @property
    def is_idle(self) -> bool:
        return not self._running and time.monotonic() - self.idle_since >= _IDLE

    def run(self, order: Order, is_wanted: Callable[[], bool]) -> Done | Refused:
        """Run an order; :raises RuntimeError: when nobody wants it any more."""
        name = order.action.name
        with self._lock:
            self._running.add(name)
            try:
                executor = self._executor or self._settle()
                task = self._task(order)
                executor.start(task)
            except FlashdepotError as error:
                self._running.discard(name)
                return Refused(error.message, _FILL if isinstance(error, NetworkError) else error.hint)
        self._tell({"kind": "started", "name": name})
        wanted = True
        while (ended := self._taken(executor, name)) is None:
            if wanted and not is_wanted():
                wanted = False
                with self._lock:
                    executor.end(name)
            time.sleep(_TICK)
        with ended.task.lock:
            done = _done(ended)
        executor.release(ended)
        for left in (task.log, *task.made.values()):
            left.unlink(missing_ok=True)
        if not wanted:
            raise RuntimeError("this was cancelled")
        return done

    def end(self) -> None:
        """End every compiler, and remove what they worked in."""
        with self._lock:
            if self._executor is not None:
                self._executor.stop()
            self._held.close()

    def _taken(self, executor: LocalExecutor, name: str) -> Ended | None:
        with self._lock:
            self._ended |= {ended.task.action.name: ended for ended in executor.ended(0)}
            ended = self._ended.pop(name, None)
            if ended is not None:
                self._running.discard(name)
                self.idle_since = time.monotonic()
            if time.monotonic() - self._looked >= _LOOK or not self._running:
                self._looked = time.monotonic()
                self._tell({"kind": "memory", "bytes": descendants_memory() if self._running else 0})
            return ended

    def _task(self, order: Order) -> Task:
        place = self._work / str(next(self._numbers))
        made = {}
        for word, data in order.made.items():
            made[word] = place.with_name(f"{place.name}-{word}{order.action.suffix}.made")
            made[word].write_bytes(data)
        lock = try_lock_file(place.with_suffix(".lock"))
        assert lock is not None, "the number is its own"  # noqa: S101
        return Task(order.action, made, lock, place.with_suffix(".log"))

    def _settle(self) -> LocalExecutor:
        """Provide what compiles, and see that it is what the build compiles with; :raises FlashdepotError: when not."""
        site = self._site
        depot = open_depot()
        self._work = self._held.enter_context(depot.workspace())
        host, folder = runtime_facts(), depot.layout.toolchains
        toolchain = choose_toolchain(
            _choice(site), host, site.sass, driver=None, folder=folder, work=self._work, on_file=self._on_file
        )
        _require_tools(site, toolchain)
        provided = provide(site.families, host.platform, folder, self._on_file)
        sources = {place: self._work / "sources" / place for place in site.sources}
        for place, files in site.sources.items():
            for name, data in files.items():
                path = sources[place] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        environment = {
            name: value for name, value in toolchain.whole_environment().items() if name not in site.variables
        }
        environment |= {name: value for name, value in site.variables.items() if value}
        if site.confined:
            environment = confined_environment(environment, site.variables)
        by = confinement_here() if site.confined else Confinement.NONE
        named = places(sources, provided, toolchain)
        self._executor = LocalExecutor(named, programs(toolchain), environment, Limits(), self._work, by)
        self._executor.prepare()
        return self._executor

    def _on_file(self, name: str) -> Download:
        self._tell({"kind": "note", "text": f"fetching {name}"})
        return lambda _done, _total: None


def _choice(site: Site) -> CudaChoice:
    """The pinned nvcc, or the toolkit in the folder that the build takes it from, or else one of that release."""
    if not site.cuda:
        return AnyCuda.AUTO
    return Path(site.cuda) if Path(site.cuda).is_dir() or not site.release else Version.parse(site.release)


def _require_tools(site: Site, toolchain: Toolchain) -> None:
    mine = {tool.name: tool for tool in identify_toolchain(toolchain).tools}
    for tool in site.tools:
        found = mine.get(tool.name)
        if found != tool:
            has = f"{found.version} with SHA-256 {found.digest[:12]}" if found else "none"
            raise FlashdepotError(
                f"its {tool.name} is {has}, and the build's is {tool.version} with SHA-256 {tool.digest[:12]}",
                hint="Build with the nvcc from PyPI (--cuda auto), which every worker can fetch; or install the same "
                "CUDA toolkit in the same folder on all workers.",
            )


def _done(ended: Ended) -> Done:
    log = ended.task.log.read_text(errors="replace")
    if ended.cost.status != 0:
        return Done(ended.cost, log)
    return Done(ended.cost, log, ended.output.read_bytes(), ended.inputs)


_benches: dict[str, _Bench] = {}
_one_at_a_time = threading.Lock()


def refusal(theirs: tuple[str, str], ours: tuple[str, str]) -> Refused | None:
    """Why a worker with another :func:`own_release` cannot work for a build; ``None`` for the same."""
    if theirs == ours:
        return None
    differs = f"runs Python {theirs[1]}, and this is Python {ours[1]}"
    if theirs[0] != ours[0]:
        differs = f"has flashdepot {theirs[0]}, and this is {ours[0]}"
    return Refused(
        f"{differs}: they might not make the same bytes",
        "Start the scheduler and the workers in an environment like this one: "
        f"Python {ours[1]}, and pip install '.[farm]' in the clone of flashdepot {ours[0]} that this one is from",
    )


def arrive(site: Site) -> Site:
    """The site itself: as a task's result Dask gives it to every worker that needs it, and makes it again if it is lost."""
    return site


def run_order(site: Site, order: Order) -> tuple[str, Done | Refused]:
    """Run one order; :returns: the name of the worker, and the answer."""
    from distributed import get_worker  # noqa: PLC0415  (of an extra)

    worker = get_worker()
    name, key = str(worker.name), worker.get_current_task()

    def tell(event: dict[str, Any]) -> None:
        worker.log_event(order.session, {**event, "worker": name})

    if (refused := refusal(own_release(), site.made_by)) is not None:
        return name, refused
    with _one_at_a_time:
        for session in [session for session, bench in _benches.items() if bench.is_idle]:
            _benches.pop(session).end()
        bench = _benches.setdefault(order.session, _Bench(site, tell))
        bench.idle_since = time.monotonic()
    try:
        return name, bench.run(order, lambda: _is_wanted(worker, key))
    finally:
        if not _is_wanted(worker, key) and not bench.is_running:  # the build has gone without saying so
            end(order.session)


def _is_wanted(worker: Worker, key: str) -> bool:
    """Whether the scheduler still wants a task of this worker: it does not when its client has gone or cancelled it.

    A worker that has lost its scheduler closes, and waits half a minute for its tasks.
    """
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status.name not in {"closing", "closed", "failed"}


def end(session: str) -> None:
    """End the bench of a build, and every compiler on it."""
    with _one_at_a_time:
        bench = _benches.pop(session, None)
    if bench is not None:
        bench.end()
