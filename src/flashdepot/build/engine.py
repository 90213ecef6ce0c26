"""Runs the actions that the depot cannot answer, by an executor, and keeps what each made the moment it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from flashdepot.build.schedule import OUT_OF_MEMORY_TRIES, Capacity, History, Job, Outlook, foresee, next_job
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord, action_key
from flashdepot.errors import CompileError, FlashdepotError
from flashdepot.events import BuildProgress, Snapshot
from flashdepot.files.locks import HeldLock
from flashdepot.model.limits import joined
from flashdepot.model.recipe import Action, Recipe, Sides
from flashdepot.process.child import Cost
from flashdepot.process.run import first_error, killed_for_memory
from flashdepot.toolchain.linked import disk_full


class Task(msgspec.Struct, frozen=True):
    """An action that is to run now.

    ``made`` are the files that the actions it needs have made, by the names in its arguments. ``lock`` is held until the task is settled. ``log`` gets all that the compiler writes.
    ``peak`` is the memory in bytes that it is expected to take, and with ``by_itself`` nothing should run next to it.
    """

    action: Action
    made: Mapping[str, Path]
    lock: HeldLock
    log: Path
    peak: int = 0
    by_itself: bool = False


class Ended(msgspec.Struct, frozen=True):
    """A task that ended: what it cost, and where what it made is, if its status is 0.

    ``inputs`` are the digests by name of all that it read; ``None`` when a file was changed while it ran, so that
    nobody knows which bytes the compiler saw. ``worker`` is the name of the machine that ran it, empty for this one.
    ``error`` says why it did not end, or why what it made is not taken.
    """

    task: Task
    cost: Cost
    output: Path
    inputs: Mapping[str, str] | None
    worker: str = ""
    error: FlashdepotError | None = None


class Executor(Protocol):
    """Runs tasks. What to run, and what becomes of the result, the engine decides."""

    def prepare(self) -> None:
        """Called once before the first task."""

    def capacity(self) -> Capacity:
        """How many tasks may run at once, and in how many bytes of memory."""

    def start(self, task: Task) -> None:
        """Begin a task and return at once; :raises FlashdepotError: when it cannot be begun."""

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Wait so long at most, and return the tasks that have ended since the last call."""

    def release(self, ended: Ended) -> None:
        """Called when what a task made has been kept: its files are not needed any more."""

    def elapsed(self, name: str) -> float:
        """The seconds that the action of that name has run; 0 while it waits for its turn, and once it has ended."""

    def memory(self) -> int:
        """Bytes of memory that running tasks hold."""

    def digest(self, name: str) -> str | None:
        """The digest that an input has now, by its name; ``None`` when it is not there."""

    def stop(self) -> None:
        """End everything that runs, and wait for its end."""


def compile_error(name: str, status: int, log: str, path: Path) -> FlashdepotError:
    """The error of one compilation: its first hard error, and where the whole output is."""
    if (full := disk_full(name, "compiled", log, path.parent)) is not None:
        return full
    reason = first_error(log) or "it wrote no message"
    return CompileError(
        f"{name}: the compiler ended with status {status}: {reason}",
        hint=f"What it means, and what fixes it: flashdepot explain {joined([path])}",
        log=path,
    )


_TICK = 0.25
"""Seconds between two progress updates, and two checks of what other processes compile."""

_NEARLY = 0.99
"""The largest progress shown while a compiler still runs, whatever was predicted."""

_CHANGES_FOLLOWED = 3
"""How often a unit is compiled whose sources somebody edits meanwhile."""


class BuildOutcome(msgspec.Struct, frozen=True):
    """The record of every action by name, and which of them were compiled by this run.

    ``workers`` are the machines that compiled them, by their names, where that was not this one.
    """

    actions: Mapping[str, ActionRecord]
    compiled: frozenset[str]
    workers: Mapping[str, str] = msgspec.field(default_factory=dict)


@dataclass
class Engine:
    """One build. Create it, call :meth:`run` once.

    ``environment`` is what the compilers find in theirs, as far as it goes into keys. ``work`` is a folder for the files
    that actions need of one another.
    """

    depot: Depot
    recipe: Recipe
    executor: Executor
    environment: Mapping[str, str]
    progress: BuildProgress
    work: Path
    keep_going: bool = False

    def __post_init__(self) -> None:
        self._history = History(self.depot.layout.estimates)
        (self.work / "made").mkdir()
        self._planned: dict[str, Action] = {}
        self._sides = Sides.of(())
        self._intents: dict[str, str] = {}
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, Job] = {}
        self._elsewhere: set[str] = set()
        self._actions: dict[str, ActionRecord] = {}
        self._compiled: set[str] = set()
        self._workers: dict[str, str] = {}
        self._failed: set[str] = set()
        self._failures: list[FlashdepotError] = []
        self._unsettled: Counter[str] = Counter()
        self._expected_seconds = 0.0
        self._seen_seconds = 0.0
        self._work = 0.0
        self._fraction = 0.0

    def run(self, actions: Sequence[Action]) -> BuildOutcome:
        """Make every output, from the depot or by compiling.

        :param actions: each after those that it needs.
        :raises CompileError: when a compiler refuses its input; what finished before is kept. With ``keep_going`` all
            others are compiled first.
        """
        if not self._planned:
            self.foresee(actions)
        if self._waiting:
            try:
                self.executor.prepare()
                self._drive()
            finally:
                self.executor.stop()
                self._history.save()
        if self._failures:
            raise self._failure()
        made = {name: self._actions[name] for name in self._planned}
        return BuildOutcome(made, frozenset(self._compiled), dict(self._workers))

    def foresee(self, actions: Sequence[Action]) -> Outlook:
        """Ask the depot for every output, and estimate the time for the others. Nothing is compiled.

        :param actions: as for :meth:`run`, which then begins with what was found here.
        """
        self._planned = {action.name: action for action in actions}
        self._sides = Sides.of(actions)
        if len(self._planned) < len(actions):
            twice = [name for name, count in Counter(action.name for action in actions).items() if count > 1]
            raise FlashdepotError(f"Two actions have the name {twice[0]}.")
        for action in actions:
            estimate = self._history.estimate(action, self.recipe)
            self._waiting[action.name] = Job(action.name, estimate.seconds, estimate.peak)
        self._look_up()
        self._work = sum(job.seconds for job in self._waiting.values())
        return foresee(list(self._waiting.values()), (), self.executor.capacity())

    def _look_up(self) -> None:
        """Ask the depot, and then the remotes, for every action that can be asked for now and was not yet."""
        while missing := self._missing():
            wanted, digest = {self._intents[name] for name in missing}, self.executor.digest
            self.depot.remotes.first(lambda one: one.fetch_units(self.depot, wanted, digest, self.progress.note))  # noqa: B023
            for name in missing:
                self._is_stored(name)

    def _missing(self) -> list[str]:
        """The actions that can be asked for now and were not yet, without those that the depot has."""
        missing = []
        for name in [name for name in self._waiting if name not in self._intents]:
            needs = self._planned[name].needs
            if all(need in self._actions for need in needs.values()):
                made = {word: self._actions[need].object.digest for word, need in needs.items()}
                self._intents[name] = self._planned[name].intent_key(self.environment, made)
                if not self._is_stored(name):
                    missing.append(name)
        return missing

    def _is_stored(self, name: str) -> bool:
        """Whether the depot has what an action makes; then nothing is left to do for it."""
        found = self.depot.actions.find(self._intents[name], self.executor.digest)
        if found is not None:
            self._actions[name] = found
            self._waiting.pop(name, None)
        return found is not None

    def _drive(self) -> None:
        while self._waiting or self._running:
            if self._failures and not self.keep_going:
                self._waiting.clear()
            self._drop_what_lost_a_need()
            capacity = self.executor.capacity()
            while job := next_job(self._ready(), list(self._running.values()), capacity):
                self._begin(job)
            for ended in self.executor.ended(_TICK):
                job = self._running.pop(ended.task.action.name)
                with ended.task.lock:
                    self._settle(ended, job)
                self.executor.release(ended)
            self._look_elsewhere()
            self._look_up()
            self.progress.update(self._snapshot())

    def _ready(self) -> list[Job]:
        return [job for job in self._waiting.values() if job.name in self._intents and job.name not in self._elsewhere]

    def _drop_what_lost_a_need(self) -> None:
        for name in list(self._waiting):
            if self._failed.intersection(self._planned[name].needs.values()):
                del self._waiting[name]
                self._failed.add(name)

    def _begin(self, job: Job) -> None:
        """Start an action, unless another process compiles it or has done so meanwhile."""
        intent = self._intents[job.name]
        lock = self.depot.try_lock(intent)
        if lock is None:
            self._elsewhere.add(job.name)
            self.progress.note(f"{job.name}: another process compiles it; waiting for its result.")
            return
        if self._is_stored(job.name):
            lock.release()
            return
        del self._waiting[job.name]
        action = self._planned[job.name]
        log = self.depot.log_path(action.name, intent)
        try:
            made = {word: self._made(need) for word, need in action.needs.items()}
            self.executor.start(Task(action, made, lock, log, job.peak, job.by_itself))
        except BaseException:
            lock.release()
            raise
        self._running[job.name] = job

    def _made(self, name: str) -> Path:
        """The file that an action made, under a name that says what it is."""
        path = self.work / "made" / f"{name}{self._planned[name].suffix}"
        if not path.exists():
            self.depot.blobs.link_or_copy(self._actions[name].object.digest, path)
        return path

    def _settle(self, ended: Ended, job: Job) -> None:
        """Keep what a compiler made, queue it again if memory killed it, or remember its failure."""
        action, cost, log = ended.task.action, ended.cost, ended.task.log
        name = action.name
        if ended.error is not None:
            self._fail(name, ended.error)
            return
        if cost.status != 0:
            text = log.read_text(errors="replace")
            if killed_for_memory(cost.status, text):
                self._retry(job)
            else:
                self._fail(name, compile_error(name, cost.status, text, log))
            return
        if ended.inputs is None:
            self._again(job)
            return
        read = {file: digest for file, digest in ended.inputs.items() if not action.ignores(file)}
        record = ActionRecord(
            action_key=action_key(self._intents[name], read),
            intent_key=self._intents[name],
            name=name,
            inputs=read,
            cpu_seconds=round(cost.cpu_seconds, 2),
            wall_seconds=round(cost.wall_seconds, 2),
            peak_rss=cost.peak,
        )
        self._actions[name] = self.depot.actions.record(record, ended.output)
        self._compiled.add(name)
        if ended.worker:
            self._workers[name] = ended.worker
        self._history.add(action, self.recipe, cost.cpu_seconds, cost.peak)
        if name not in self._sides.others:
            self._expected_seconds += job.seconds
            self._seen_seconds += cost.wall_seconds
        if name in self._sides.device:
            self.progress.finished(name, cost.wall_seconds, self._snapshot())

    def _fail(self, name: str, error: FlashdepotError) -> None:
        self._failed.add(name)
        self._failures.append(error)

    def _again(self, job: Job) -> None:
        self._unsettled[job.name] += 1
        if self._unsettled[job.name] < _CHANGES_FOLLOWED:
            self.progress.note(f"{job.name}: its sources changed while it was compiled; compiling it again.")
            self._waiting[job.name] = job
            return
        error = CompileError(
            f"{job.name}: its sources changed each of the {_CHANGES_FOLLOWED} times it was compiled.",
            hint="Stop editing them, or build from a copy: --upstream DIR",
        )
        self._fail(job.name, error)

    def _retry(self, job: Job) -> None:
        if job.by_itself and job.tries >= OUT_OF_MEMORY_TRIES:
            error = CompileError(
                f"{job.name}: the compiler was killed for memory {job.tries + 1} times, the last time by itself.",
                hint="Give the machine more memory or swap, or leave out large units: --head-dims 64,128",
            )
            self._fail(job.name, error)
            return
        again = job.after_out_of_memory()
        self._waiting[job.name] = again
        self.progress.note(
            f"{job.name}: the compiler was killed for memory; it will run again by itself, "
            f"with {again.peak / 1e9:.1f} GB set aside."
        )

    def _look_elsewhere(self) -> None:
        for name in sorted(self._elsewhere):
            if name not in self._waiting:
                continue
            if not self._is_stored(name):
                lock = self.depot.try_lock(self._intents[name])
                if lock is None:
                    continue
                lock.release()  # the other process gave up: this one may compile it
            self._elsewhere.discard(name)

    def _failure(self) -> FlashdepotError:
        first, *others = self._failures
        if not others:
            return first
        more = "; ".join(error.message for error in others)
        return type(first)(f"{first.message} ({len(others)} more failed: {more})", hint=first.hint)

    def _snapshot(self) -> Snapshot:
        # Predictions were made on another machine, or under another load: scale them by what this build has seen.
        pace = self._seen_seconds / self._expected_seconds if self._expected_seconds else 1.0
        begun = {name: self.executor.elapsed(name) / pace for name in self._running}
        running = [(self._running[name], elapsed) for name, elapsed in begun.items() if elapsed]
        waiting = [*self._waiting.values(), *(self._running[name] for name, elapsed in begun.items() if not elapsed)]
        left = foresee(waiting, running, self.executor.capacity()).seconds
        # A job that has outrun its prediction counts as nearly done, and a build never goes backwards.
        work = sum(job.seconds for job in waiting)
        work += sum(max(job.seconds - elapsed, job.seconds * 0.1) for job, elapsed in running)
        # Linking is left when all is compiled.
        self._fraction = max(self._fraction, min(1 - work / self._work if self._work else 1.0, _NEARLY))
        return Snapshot(
            done=len(self._actions),
            total=len(self._planned),
            fraction=self._fraction,
            running=[job.name for job, _ in running],
            elsewhere=sorted(self._elsewhere),
            memory=self.executor.memory(),
            eta=left * pace,
        )

    def linked(self) -> None:
        """Say that nothing is left to do."""
        self.progress.update(replace(self._snapshot(), fraction=1.0, running=(), eta=0.0))
