"""What runs actions: this machine, or others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from flashdepot.build.schedule import Capacity
from flashdepot.errors import FlashdepotError
from flashdepot.files.locks import HeldLock
from flashdepot.model.recipe import Action
from flashdepot.process.child import Cost


class Task(msgspec.Struct, frozen=True):
    """An action that is to run now.

    ``made`` are the files that the actions it needs have made, by the names in its arguments. ``lock`` is held until the task is settled. ``log`` gets all that the compiler writes.
    ``peak`` is the memory in bytes that it is expected to take, and with ``alone`` nothing should run next to it.
    """

    action: Action
    made: Mapping[str, Path]
    lock: HeldLock
    log: Path
    peak: int = 0
    alone: bool = False


class Ended(msgspec.Struct, frozen=True):
    """A task that ended: what it cost, and where what it made is, if its status is 0.

    ``inputs`` are the digests by name of all that it read; ``None`` when a file was changed while it ran, so that
    nobody knows which bytes the compiler saw. ``worker`` is the name of the machine that ran it, empty for this one.
    ``error`` says why it came to no end at all, or why what it made is not taken.
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
