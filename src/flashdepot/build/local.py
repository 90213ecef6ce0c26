"""The executor of this machine: a process a task, within its memory, confined where the source is not trusted."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashdepot.build.engine import Ended, Task
from flashdepot.build.inputs import InputDigests, Moment, PlaceNames, decoded, programs, read_depfile
from flashdepot.build.resident import Resident, Residents
from flashdepot.build.schedule import Capacity
from flashdepot.errors import FlashdepotError
from flashdepot.events import BuildProgress
from flashdepot.host.surroundings import usable_cores, usable_memory
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action, PrecompiledHeader, filled
from flashdepot.process.child import Child, Cost, descendants_memory
from flashdepot.process.confinement import UNCONFINED, Confinement, Visible, confined, confinement_here, is_lifted
from flashdepot.toolchain.choose import Toolchain

_KEPT = frozenset({"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "SYSTEMROOT"})
"""Variables that compilers need. All others stay outside: a token may be among them."""

_OF_A_TOOL = ("bin", "lib", "lib32", "lib64", "libexec", "include", "share/gcc*", "*-linux-*", "pyvenv.cfg")
"""What belongs to a compiler, in the folder that it was installed into."""


def confined_environment(environment: Mapping[str, str], variables: Iterable[str]) -> dict[str, str]:
    """Of an environment what compilers need.

    :param variables: those that change what the compilers write.
    """
    kept = _KEPT.union(variables)
    return {name: value for name, value in environment.items() if name in kept}


def tool_folders(programs: Iterable[str]) -> tuple[Path, ...]:
    """What compilers consist of outside the system's folders, such as a conda environment's or a toolset's.

    Python is among them: it compiles FlashAttention-4.
    """
    found: list[Path] = []
    for program in map(Path, (*programs, sys.executable, f"{sys.base_prefix}/bin/python")):
        for path in (program, program.resolve()) if program.is_absolute() else ():
            prefix = path.parent.parent
            found += [path.parent, *(inner for name in _OF_A_TOOL for inner in prefix.glob(name))]
    return tuple(dict.fromkeys(found))


def named_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders that the user's own variables name, such as CPATH; not PATH, where programs are found."""
    texts = (value for name, value in environment.items() if name != "PATH")
    return tuple(Path(part) for text in texts for part in text.split(os.pathsep) if os.path.isabs(part))  # noqa: PTH117


_WORTH_IT = 3
"""The use from which on a header is made first: making it takes about as long as two uses save."""


@dataclass
class SharedHeader:
    """One precompiled header: made by the command of an action that wants it, then used by those that follow.

    ``started`` is when its compiler was started: what changed since is not in it.
    """

    words: PrecompiledHeader
    folder: Path
    uses: int = 0
    started: Moment | None = None
    made: bool = False
    spoiled: bool = False
    _read: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / "header.pch"

    def making(self, names: Mapping[str, str]) -> list[str]:
        """The command that makes it, from now on."""
        self.folder.mkdir()
        source = self.folder / "empty.cu"
        source.touch()
        self.started = Moment.now()
        outputs = {"output": self.path, "depfile": self.path.with_suffix(".d"), "source": source}
        return filled({**names, **{name: str(path) for name, path in outputs.items()}}, *self.words.make)

    def keep(self, cwd: Path) -> None:
        """It was made."""
        self._read = read_depfile(decoded(self.path.with_suffix(".d").read_bytes()), cwd)
        self.made = True

    def using(self) -> list[str]:
        """The extra words of a command."""
        return filled({"header": str(self.path)}, *self.words.use)

    def with_its_own(self, paths: Iterable[str]) -> tuple[str, ...]:
        """What a compiler read that began with it: what the depfile says, and what was asked for when it was made."""
        ours = f"{self.folder}{os.sep}"
        return tuple(dict.fromkeys(path for path in (*self._read, *paths) if not path.startswith(ours)))


_MEMORY_TICK = 1.0
"""Seconds between two checks of the machine's memory: each reads the whole process table."""

_NOTHING = Cost(0, 0.0, 0.0, 0)


@dataclass
class _Running:
    """A task, and the compiler that runs for it now: that of the header it begins with, or its own."""

    task: Task
    output: Path
    header: SharedHeader | None
    child: Child | Resident
    started: Moment
    before: Cost = _NOTHING
    """What its compilers cost that have ended."""
    ended: bool = False
    """Somebody has asked for its end: no other compiler is started for it."""


@dataclass
class LocalExecutor:
    """Runs compilers here, each in a folder of its own below ``work``.

    ``programs`` are what actions name that is not a folder. ``confinement`` is how compilers are kept from the files of the
    user's. A command is the same however many cores are free: what nvcc's
    ``--split-compile`` writes differs with every number of threads.
    """

    places: PlaceNames
    programs: Mapping[str, str]
    environment: Mapping[str, str]
    limits: Limits
    work: Path
    confinement: Confinement = Confinement.NONE
    _running: dict[str, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inputs = InputDigests(self.places)
        self._headers: dict[tuple[str, PrecompiledHeader], SharedHeader] = {}
        self._residents = Residents(self.work)
        self._ended: queue.Queue[tuple[_Running, Cost]] = queue.Queue()
        self._tries = 0
        self._looked = -_MEMORY_TICK
        self._used = 0
        self._available = 0

    def prepare(self) -> None:
        """Look at all inputs, so that a change is seen whatever the clock says."""
        # Not the whole toolkit: its headers have a place of their own.
        self._inputs.look(folder for name, folder in self.places.places if name != "cuda")

    def capacity(self) -> Capacity:
        """The jobs that were asked for, and the memory that was, or what the machine has less a reserve."""
        now = time.monotonic()
        if now - self._looked >= _MEMORY_TICK:
            self._looked = now
            self._used = descendants_memory() if self._running else 0
            self._available = usable_memory() + self._used
        jobs = self.limits.jobs or usable_cores()
        if self.limits.memory is not None:
            return Capacity(jobs, self.limits.memory)
        return Capacity.next_to_others(jobs, self._available)

    def start(self, task: Task) -> None:
        """Start the compiler of a task."""
        action = task.action
        self._tries += 1
        folder = self.work / f"{action.name}-{self._tries}"
        folder.mkdir()
        output = folder / f"{action.name}{action.suffix}"
        header = self._next_header(action)
        begin = self._resident if action.resident and self.confinement is Confinement.NONE else self._compiler
        child, started = begin(task, output, header)
        self._follow(_Running(task, output, header, child, started))

    def _next_header(self, action: Action) -> SharedHeader | None:
        """What the next run of an action begins with: a header that is made, or that it is to make first.

        :returns: ``None`` when it has none, or does without: while too few have asked for it or another makes it, and
            when it failed.
        """
        if action.header is None:
            return None
        key, folder = (action.place, action.header), self.work / f"header-{len(self._headers)}"
        header = self._headers.setdefault(key, SharedHeader(action.header, folder))
        header.uses += 1
        if header.spoiled or (header.started is None and header.uses < _WORTH_IT):
            return None
        return header if header.made or header.started is None else None

    def _resident(self, task: Task, output: Path, _: SharedHeader | None) -> tuple[Resident, Moment]:
        """Give a task to a compiler that stays; what that imported is as old as its start."""
        action = task.action
        command = action.resident_command({**self.places.folders, **self.programs, "work": str(self.work)})
        resident = self._residents.take(action.resident, command, cwd=self._cwd(task), env=self._environment)
        outputs = {"object": str(output), "depfile": str(output.with_suffix(".d"))}
        resident.assign({"job": json.loads(action.arguments[-1]), **outputs}, task.log)
        return resident, resident.started

    def _compiler(self, task: Task, output: Path, header: SharedHeader | None) -> tuple[Child, Moment]:
        """Start what a task needs next: the compiler of a header that is not made yet, or its own."""
        action, folder = task.action, output.parent
        made = {name: str(path) for name, path in task.made.items()}
        outputs = {"output": str(output), "depfile": str(output.with_suffix(".d"))}
        names = {**self.places.folders, **self.programs, "work": str(self.work), **made, **outputs}
        if header is None or header.made:
            command = action.command(names, header.using() if header else ())
            seen = Visible((header.folder,) if header else (), (folder,))
        else:
            command = header.making(names)
            seen = Visible((), (folder, header.folder))
        environment = self._environment(folder)
        if self.confinement is not Confinement.NONE:
            environment |= {"HOME": str(folder)}
            command = self._confined(task, command, seen)
        started = Moment.now()
        # The compiler holds its lock itself: nobody else starts the same one while it runs.
        child = Child(command, cwd=self._cwd(task), env=environment, log=task.log, descriptors=(task.lock.fileno(),))
        return child, started

    def _environment(self, folder: Path) -> dict[str, str]:
        """What compilers find in theirs.

        One language for messages, and temporary files where the build's own are; TEMP and TMP for Windows.
        """
        return {**self.environment, "LC_ALL": "C", **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}

    def _follow(self, running: _Running) -> None:
        child = running.child
        self._running[running.task.action.name] = running
        threading.Thread(target=lambda: self._ended.put((running, child.wait())), daemon=True).start()

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Wait for the first compiler to end, and take those that ended with it."""
        found: list[Ended] = []
        self._residents.dismiss()
        try:
            found.extend(self._take(*self._ended.get(timeout=seconds)))
            while True:
                found.extend(self._take(*self._ended.get_nowait()))
        except queue.Empty:
            return found

    def release(self, ended: Ended) -> None:
        """Remove the folder of a task."""
        shutil.rmtree(ended.output.parent, ignore_errors=True)

    def elapsed(self, name: str) -> float:
        """The seconds since the compiler was started; 0 once it has ended."""
        running = self._running.get(name)
        return running.before.wall_seconds + running.child.elapsed if running else 0.0

    def memory(self) -> int:
        """What compilers held at the last look."""
        return self._used

    def digest(self, name: str) -> str | None:
        """The digest of a file of this machine."""
        return self._inputs.digest(name)

    def end(self, name: str) -> None:
        """Kill the compiler of one action; :meth:`ended` tells of its end."""
        if (running := self._running.get(name)) is not None:
            running.ended = True
            running.child.kill()

    def stop(self) -> None:
        """Kill every compiler and wait for its end."""
        self._residents.dismiss(idle_for=0)
        for running in self._running.values():
            running.child.kill()
        while self._running:
            ended, _ = self._ended.get()
            del self._running[ended.task.action.name]
            if isinstance(ended.child, Resident):
                ended.child.leave()
            ended.task.lock.release()

    def _take(self, running: _Running, cost: Cost) -> Sequence[Ended]:
        """What a compiler's end means: that of its task, or nothing yet, as another one follows."""
        task, header = running.task, running.header
        if header is not None and not running.ended and (not header.made or cost.status != 0):
            if cost.status == 0:
                header.keep(self._cwd(task))
            else:
                header.spoiled, running.header = True, None
            del self._running[task.action.name]
            running.before = _together(running.before, cost)
            try:
                running.child, running.started = self._compiler(task, running.output, running.header)
            except FlashdepotError as error:
                return [Ended(task, running.before, running.output, None, error=error)]
            except BaseException:
                task.lock.release()
                raise
            self._follow(running)
            return []
        del self._running[task.action.name]
        cost = _together(running.before, cost)
        inputs = None
        if cost.status == 0:
            inputs = self._read(running)
        if isinstance(running.child, Resident):
            self._residents.give_back(running.child, fit=inputs is not None)
        return [Ended(task, cost, running.output, inputs)]

    def _read(self, running: _Running) -> dict[str, str] | None:
        """The digests by name of all that a task read; ``None`` when a file was changed meanwhile."""
        paths = read_depfile(decoded(running.output.with_suffix(".d").read_bytes()), self._cwd(running.task))
        header = running.header
        if header is None or header.started is None:
            return self._inputs.closure(paths, running.started)
        inputs = self._inputs.closure(header.with_its_own(paths), header.started)
        header.spoiled = header.spoiled or inputs is None
        return inputs

    def _confined(self, task: Task, command: Sequence[str], seen: Visible) -> list[str]:
        sources = [place for _, place in self.places.places]
        tools = tool_folders([command[0], *self.programs.values()])
        readable = (*sources, *tools, *named_folders(self.environment), *task.made.values(), *seen.readable)
        return confined(command, self._cwd(task), Visible(readable, seen.writable), self.confinement)

    def _cwd(self, task: Task) -> Path:
        return self.places.path(f"{{{task.action.place}}}/.")


def local_executor(
    actions: Iterable[Action],
    places: PlaceNames,
    toolchain: Toolchain,
    limits: Limits,
    work: Path,
    progress: BuildProgress,
    *,
    foreign: bool,
) -> LocalExecutor:
    """The executor for some actions by a toolchain of this machine.

    :param foreign: their sources are not trusted: the compilers are confined, and the user is given.
    """
    environment = toolchain.whole_environment()
    confinement = confinement_here() if foreign else Confinement.NONE
    if foreign and not is_lifted():
        note = "This source is not a published one: its compilers are confined"
        progress.note(f"{note} {confinement}. {UNCONFINED}=1 lifts that.")
        environment = confined_environment(environment, {name for action in actions for name in action.variables})
    return LocalExecutor(places, programs(toolchain), environment, limits, work, confinement)


def _together(before: Cost, last: Cost) -> Cost:
    return Cost(
        last.status,
        before.cpu_seconds + last.cpu_seconds,
        before.wall_seconds + last.wall_seconds,
        max(before.peak, last.peak),
    )
