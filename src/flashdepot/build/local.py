"""The executor of this machine: a process a task, within its memory."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from flashdepot.build.depfile import decoded, read_depfile
from flashdepot.build.executor import Ended, Task
from flashdepot.build.foreign import named_folders, tool_folders
from flashdepot.build.inputs import InputDigests, Moment
from flashdepot.build.names import PlaceNames
from flashdepot.build.schedule import Capacity
from flashdepot.host.memory import usable_cores, usable_memory
from flashdepot.model.limits import Limits
from flashdepot.system.child import Child, Cost, descendants_memory
from flashdepot.system.confinement import Means, View, confined
from flashdepot.toolchain.long_commands import startable

_MEMORY_TICK = 1.0
"""Seconds between two looks at the machine's memory: each reads the whole process table."""


@dataclass
class _Running:
    task: Task
    child: Child
    output: Path
    started: Moment


@dataclass
class LocalExecutor:
    """Runs compilers here, each in a folder of its own below ``work``.

    ``programs`` are what actions name besides folders. ``confinement`` is how compilers are kept from the files of the
    user's, ``None`` when they are not. A command is the same however many cores are free: what nvcc's
    ``--split-compile`` writes differs with every number of threads.
    """

    places: PlaceNames
    programs: Mapping[str, str]
    environment: Mapping[str, str]
    limits: Limits
    work: Path
    confinement: Means | None = None
    _running: dict[str, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inputs = InputDigests(self.places)
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
        memory = self.limits.memory
        if memory is None:
            memory = self._available - reserve(self._available)
        return Capacity(self.limits.jobs or usable_cores(), memory)

    def start(self, task: Task) -> None:
        """Start the compiler of a task."""
        action = task.action
        self._tries += 1
        folder = self.work / f"{action.name}-{self._tries}"
        folder.mkdir()
        output = folder / f"{action.name}{action.suffix}"
        made = {name: str(path) for name, path in task.made.items()}
        outputs = {"output": str(output), "depfile": str(output.with_suffix(".d"))}
        command = action.command({**self.places.folders, **self.programs, "work": str(self.work), **made, **outputs})
        # One language for messages, and temporary files where the build's own are; VSLANG, TEMP and TMP for Windows.
        language = {"LC_ALL": "C", "VSLANG": "1033"}
        environment = {**self.environment, **language, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
        command = startable(command, folder)
        if self.confinement is not None:
            environment |= {"HOME": str(folder)}
            command = self._confined(task, command, folder, self.confinement)
        started = Moment.now()
        # The compiler holds its lock itself: nobody else starts the same one while it runs.
        child = Child(
            command,
            cwd=self._cwd(task),
            env=environment,
            log=task.log,
            descriptors=(task.lock.fileno(),),
        )
        running = self._running[action.name] = _Running(task, child, output, started)
        threading.Thread(target=lambda: self._ended.put((running, child.wait())), daemon=True).start()

    def ended(self, seconds: float) -> Sequence[Ended]:
        """Wait for the first compiler to end, and take those that ended with it."""
        found = []
        try:
            found.append(self._take(*self._ended.get(timeout=seconds)))
            while True:
                found.append(self._take(*self._ended.get_nowait()))
        except queue.Empty:
            return found

    def release(self, ended: Ended) -> None:
        """Remove the folder of a task."""
        shutil.rmtree(ended.output.parent, ignore_errors=True)

    def elapsed(self, name: str) -> float:
        """The seconds since the compiler was started; 0 once it has ended."""
        running = self._running.get(name)
        return running.child.elapsed if running else 0.0

    def memory(self) -> int:
        """What compilers held at the last look."""
        return self._used

    def digest(self, name: str) -> str | None:
        """The digest of a file of this machine."""
        return self._inputs.digest(name)

    def end(self, name: str) -> None:
        """Kill the compiler of one action; :meth:`ended` tells of its end."""
        if (running := self._running.get(name)) is not None:
            running.child.kill()

    def stop(self) -> None:
        """Kill every compiler and wait for its end."""
        for running in self._running.values():
            running.child.kill()
        while self._running:
            ended, _ = self._ended.get()
            del self._running[ended.task.action.name]
            ended.task.lock.release()

    def _take(self, running: _Running, cost: Cost) -> Ended:
        task = running.task
        del self._running[task.action.name]
        if self.confinement is not None and not self.confinement.counts:
            cost = replace(cost, cpu_seconds=cost.wall_seconds, peak=0)
        inputs = None
        if cost.status == 0:
            rule = decoded(running.output.with_suffix(".d").read_bytes())
            inputs = self._inputs.closure(read_depfile(rule, self._cwd(task)), running.started)
        return Ended(task, cost, running.output, inputs)

    def _confined(self, task: Task, command: Sequence[str], folder: Path, by: Means) -> list[str]:
        sources = [place for _, place in self.places.places]
        tools = tool_folders([command[0], *self.programs.values()])
        readable = (*sources, *tools, *named_folders(self.environment), *task.made.values())
        return confined(command, self._cwd(task), View(readable, (folder,)), by)

    def _cwd(self, task: Task) -> Path:
        return self.places.path(f"{{{task.action.place}}}/.")


def reserve(memory: int) -> int:
    """Bytes of a machine's memory that no compiler is planned into: a twentieth, at least 500 MB."""
    return max(memory // 20, 500_000_000)
