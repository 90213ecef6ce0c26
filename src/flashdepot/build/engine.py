"""Runs the actions that the depot cannot answer, within the machine's memory, and keeps each the moment it ends."""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashdepot.build.depfile import read_depfile
from flashdepot.build.diagnosis import compile_error, killed_for_memory
from flashdepot.build.estimates import History
from flashdepot.build.inputs import InputDigests, Moment
from flashdepot.build.names import PlaceNames
from flashdepot.build.progress import BuildProgress, Snapshot
from flashdepot.build.schedule import (
    OUT_OF_MEMORY_TRIES,
    Capacity,
    Job,
    next_job,
    remaining_seconds,
    split_threads,
)
from flashdepot.depot import ActionRecord, Depot, HeldLock, action_key
from flashdepot.errors import CompileError, FlashdepotError
from flashdepot.host.memory import usable_memory
from flashdepot.model.action import Action
from flashdepot.model.recipe import Recipe
from flashdepot.system.child import Child, Cost, descendants_memory
from flashdepot.toolchain.long_commands import startable

_TICK = 0.25
"""Seconds between two progress updates, and two looks at what other processes compile."""

_MEMORY_TICK = 1.0
"""Seconds between two looks at the machine's memory: each reads the whole process table."""

_CHANGES_FOLLOWED = 3
"""How often a unit is compiled whose sources somebody edits meanwhile."""


@dataclass(frozen=True)
class Limits:
    """What the user asked of the engine. ``memory`` in bytes, ``None``: what the machine has, less a reserve."""

    jobs: int
    memory: int | None = None
    keep_going: bool = False


@dataclass(frozen=True)
class Outcome:
    """The record of every action by name, and which of them were compiled by this run."""

    actions: Mapping[str, ActionRecord]
    compiled: frozenset[str]


@dataclass
class _Running:
    action: Action
    job: Job
    child: Child
    lock: HeldLock
    output: Path
    log: Path
    started: Moment


@dataclass
class Engine:
    """One build. Create it, call :meth:`run` once."""

    depot: Depot
    recipe: Recipe
    places: PlaceNames
    programs: Mapping[str, str]
    limits: Limits
    history: History
    progress: BuildProgress
    split_compile: bool = False
    """Whether this nvcc has ``--split-compile``, for the last units of a build."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        self._inputs = InputDigests(self.places)
        self._ended: queue.Queue[tuple[_Running, Cost]] = queue.Queue()
        self._running: dict[str, _Running] = {}
        self._elsewhere: set[str] = set()
        self._actions: dict[str, ActionRecord] = {}
        self._compiled: set[str] = set()
        self._failures: list[FlashdepotError] = []
        self._unsettled: Counter[str] = Counter()
        self._expected_seconds = 0.0
        self._seen_seconds = 0.0
        self._looked = -_MEMORY_TICK
        self._used = 0
        self._available = 0

    def run(self, actions: Sequence[Action]) -> Outcome:
        """Make every object, from the depot or by compiling.

        :raises CompileError: when a compiler refuses its input; what finished before is kept. With ``keep_going`` all
            others are compiled first.
        """
        self._total = len(actions)
        by_name = {a.name: a for a in actions}
        intents = {a.name: a.intent_key(self.environment) for a in actions}
        waiting: dict[str, Job] = {}
        for action in actions:
            if found := self._lookup(intents[action.name]):
                self._actions[action.name] = found
            else:
                estimate = self.history.estimate(action, self.recipe)
                waiting[action.name] = Job(action.name, estimate.seconds, estimate.peak)
        if waiting:
            # Not the whole toolkit: its headers have a place of their own.
            self._inputs.look(folder for name, folder in self.places.places if name != "cuda")
            with self.depot.workspace() as work:
                try:
                    self._drive(by_name, intents, waiting, work)
                finally:
                    self._stop_all()
                    self.history.save()
        if self._failures:
            raise self._failure()
        return Outcome({name: self._actions[name] for name in by_name}, frozenset(self._compiled))

    def _drive(
        self, by_name: Mapping[str, Action], intents: Mapping[str, str], waiting: dict[str, Job], work: Path
    ) -> None:
        while waiting or self._running:
            capacity = self._capacity()
            stopping = bool(self._failures) and not self.limits.keep_going
            if stopping:
                waiting.clear()
            while job := next_job(
                [j for j in waiting.values() if j.name not in self._elsewhere],
                [r.job for r in self._running.values()],
                capacity,
            ):
                lock = self.depot.try_lock(intents[job.name])
                if lock is None:
                    self._elsewhere.add(job.name)
                    self.progress.note(f"{job.name}: another process compiles it; waiting for its result.")
                    continue
                if found := self._lookup(intents[job.name]):  # finished by another process meanwhile
                    lock.release()
                    self._actions[job.name] = found
                    del waiting[job.name]
                    continue
                del waiting[job.name]
                self._start(by_name[job.name], intents[job.name], job, lock, list(waiting.values()), capacity, work)
            self._await_one(intents, waiting)
            self._look_elsewhere(intents, waiting)
            self.progress.update(self._snapshot(waiting))

    def _capacity(self) -> Capacity:
        now = time.monotonic()
        if now - self._looked >= _MEMORY_TICK:
            self._looked = now
            self._used = descendants_memory() if self._running else 0
            self._available = usable_memory() + self._used
        memory = self.limits.memory
        if memory is None:
            memory = self._available - reserve(self._available)
        return Capacity(self.limits.jobs, memory)

    def _start(
        self,
        action: Action,
        intent: str,
        job: Job,
        lock: HeldLock,
        waiting: Sequence[Job],
        capacity: Capacity,
        work: Path,
    ) -> None:
        folder = work / f"{action.name}-{job.tries}"
        folder.mkdir(exist_ok=True)
        output = folder / f"{action.name}{action.suffix}"
        command = action.command({**self.places.folders, **self.programs, **_outputs(output)})
        threads = split_threads(job, waiting, [r.job for r in self._running.values()], capacity)
        if self.split_compile and action.unit and threads > 1:
            command.append(f"--split-compile={threads}")
        log = self.depot.log_path(action.name, intent)
        # One language for messages, and temporary files where the build's own are; VSLANG, TEMP and TMP for Windows.
        language = {"LC_ALL": "C", "VSLANG": "1033"}
        environment = {**self.environment, **language, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
        started = Moment.now()
        try:
            cwd = self.places.path(f"{{{action.place}}}/.")
            # The compiler holds its lock itself: nobody else starts the same one while it runs.
            child = Child(startable(command, folder), cwd=cwd, env=environment, log=log, descriptors=(lock.fileno(),))
        except BaseException:
            lock.release()
            raise
        running = _Running(action, job, child, lock, output, log, started)
        self._running[job.name] = running
        threading.Thread(target=lambda: self._ended.put((running, child.wait())), daemon=True).start()

    def _await_one(self, intents: Mapping[str, str], waiting: dict[str, Job]) -> None:
        try:
            running, cost = self._ended.get(timeout=_TICK)
        except queue.Empty:
            return
        while True:
            del self._running[running.job.name]
            with running.lock:
                self._settle(running, cost, intents, waiting)
            shutil.rmtree(running.output.parent, ignore_errors=True)
            try:
                running, cost = self._ended.get_nowait()
            except queue.Empty:
                return

    def _settle(self, running: _Running, cost: Cost, intents: Mapping[str, str], waiting: dict[str, Job]) -> None:
        """Keep what a compiler made, queue it again if memory killed it, or remember its failure."""
        name, log = running.job.name, running.log.read_text(errors="replace")
        if cost.status != 0:
            if killed_for_memory(cost.status, log):
                self._retry(running.job, waiting)
            else:
                self._failures.append(compile_error(name, cost.status, log, running.log))
            return
        paths = read_depfile(running.output.with_suffix(".d").read_text(errors="replace"), self._cwd(running))
        inputs = self._inputs.closure(paths, running.started)
        if inputs is None:
            self._again(running.job, waiting)
            return
        record = ActionRecord(
            action_key=action_key(intents[name], inputs),
            intent_key=intents[name],
            name=name,
            inputs=inputs,
            cpu_seconds=round(cost.cpu_seconds, 2),
            wall_seconds=round(cost.wall_seconds, 2),
            peak_rss=cost.peak,
        )
        self._actions[name] = self.depot.record_action(record, running.output)
        self._compiled.add(name)
        self.history.add(running.action, self.recipe, cost.cpu_seconds, cost.peak)
        if running.action.unit:
            self._expected_seconds += running.job.seconds
            self._seen_seconds += cost.wall_seconds
        self.progress.finished(name, cost.wall_seconds, self._snapshot(waiting))

    def _again(self, job: Job, waiting: dict[str, Job]) -> None:
        self._unsettled[job.name] += 1
        if self._unsettled[job.name] < _CHANGES_FOLLOWED:
            self.progress.note(f"{job.name}: its sources changed while it was compiled; compiling it again.")
            waiting[job.name] = job
            return
        self._failures.append(
            CompileError(
                f"{job.name}: its sources changed each of the {_CHANGES_FOLLOWED} times it was compiled.",
                hint="Let them rest, or build from a copy: --upstream DIR",
            )
        )

    def _cwd(self, running: _Running) -> Path:
        return self.places.path(f"{{{running.action.place}}}/.")

    def _retry(self, job: Job, waiting: dict[str, Job]) -> None:
        if job.alone and job.tries >= OUT_OF_MEMORY_TRIES:
            self._failures.append(
                CompileError(
                    f"{job.name}: the compiler was killed for memory {job.tries + 1} times, the last time alone.",
                    hint="Give the machine more memory or swap, or leave out large units: --head-dims 64,128",
                )
            )
            return
        again = job.after_out_of_memory()
        waiting[job.name] = again
        self.progress.note(
            f"{job.name}: the compiler was killed for memory; it will run again alone, "
            f"with {again.peak / 1e9:.1f} GB set aside."
        )

    def _look_elsewhere(self, intents: Mapping[str, str], waiting: dict[str, Job]) -> None:
        for name in sorted(self._elsewhere):
            if name in waiting and (found := self._lookup(intents[name])):
                self._actions[name] = found
                del waiting[name]
            elif name in waiting and (lock := self.depot.try_lock(intents[name])):
                lock.release()  # the other process gave up: this one may compile it
            else:
                continue
            self._elsewhere.discard(name)

    def _lookup(self, intent: str) -> ActionRecord | None:
        return self.depot.find_action(intent, self._inputs.digest)

    def _failure(self) -> FlashdepotError:
        first, *others = self._failures
        if not others:
            return first
        more = "; ".join(error.message for error in others)
        return type(first)(f"{first.message} ({len(others)} more failed: {more})", hint=first.hint)

    def _snapshot(self, waiting: Mapping[str, Job]) -> Snapshot:
        # Predictions were made on another machine, or under another load: scale them by what this build has seen.
        pace = self._seen_seconds / self._expected_seconds if self._expected_seconds else 1.0
        running = [(r.job, r.child.elapsed / pace) for r in self._running.values()]
        return Snapshot(
            total=self._total,
            compiled=len(self._compiled),
            reused=len(self._actions) - len(self._compiled),
            running=[r.job.name for r in self._running.values()],
            elsewhere=sorted(self._elsewhere),
            memory=self._used,
            eta=remaining_seconds(list(waiting.values()), running, self._capacity()) * pace,
        )

    def _stop_all(self) -> None:
        for running in self._running.values():
            running.child.kill()
        while self._running:
            ended, _ = self._ended.get()
            del self._running[ended.job.name]
            ended.lock.release()


def _outputs(output: Path) -> dict[str, str]:
    return {"output": str(output), "depfile": str(output.with_suffix(".d"))}


def reserve(memory: int) -> int:
    """Bytes of a machine's memory that no compiler is planned into: a twentieth, at least 500 MB."""
    return max(memory // 20, 500_000_000)
