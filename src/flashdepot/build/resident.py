"""Compilers that stay: a process that makes one output after the other, and pays for its imports once.

It reads an assignment a line on standard input, {"job": .., "object": .., "depfile": ..}, and answers each by a line on
standard output: "status" ("made" or "failed"), what the compiler printed as "log", "error", and "peak_memory_bytes".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.build.inputs import Moment
from flashdepot.files.disk import open_fresh
from flashdepot.process.child import Child, Cost

_MOST = 64
"""After which a process is replaced: what compilers keep in memory grows with every one (fa4: 470 MB after 120)."""


_STAYS = 1.0
"""Seconds without an assignment after which one ends: what it holds in memory is not planned for."""


class _Answer(msgspec.Struct, frozen=True):
    status: str
    peak_memory_bytes: int
    log: str = ""
    error: str = ""


class Resident:
    """One such process. ``kind`` is what its answers can depend on, apart from its command.

    While it has an assignment it is to who waits what a :class:`~flashdepot.process.child.Child` is.
    """

    def __init__(self, kind: str, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
        """Start it.

        :param log: gets what it writes, except its answers.
        """
        self.kind = kind
        self.command = tuple(command)
        self.started = Moment.now()
        self.idle_since = time.monotonic()
        self._log = log
        self._made = 0
        self._cpu = 0.0
        self._child = Child(command, cwd=cwd, env=env, log=log, talks=True)

    def assign(self, assignment: Mapping[str, object], log: Path) -> None:
        """Take down an assignment; :meth:`wait` gives it to the process.

        :param log: a new file for what the compiler printed, and for all that the process wrote if it ended.
        """
        self._assignment, self._log_of_it, self._assigned = assignment, log, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since it has its assignment."""
        return time.monotonic() - self._assigned

    def wait(self) -> Cost:
        """Wait for the answer to the assignment. Called once for each, from any thread.

        :returns: the cost of this assignment; the first one's is the start's as well. Its status is that of the process, and
            not 0, if that has ended.
        """
        begun = time.monotonic()
        self._made += 1
        answer = self._answer(self._assignment)
        if answer is None:
            self._child.kill()
            cost = self._child.wait()
            _write(self._log_of_it, self._log.read_bytes())
            cpu = max(cost.cpu_seconds - self._cpu, 0.0)
            return Cost(cost.status or 1, cpu, time.monotonic() - begun, cost.peak)
        _write(self._log_of_it, (answer.log + answer.error).encode())
        before, self._cpu = self._cpu, self._child.cpu_seconds()
        self.idle_since = time.monotonic()
        status = 0 if answer.status == "made" else 1
        return Cost(status, max(self._cpu - before, 0.0), self.idle_since - begun, answer.peak_memory_bytes)

    def _answer(self, assignment: Mapping[str, object]) -> _Answer | None:
        line = self._child.ask(msgspec.json.encode(assignment))
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(line, type=_Answer)
        return None

    @property
    def is_worn(self) -> bool:
        """Whether it has ended, or has made so much that a new one should take its place."""
        return self._child.has_ended or self._made >= _MOST

    def kill(self) -> None:
        """End it at once; an assignment that it is busy with ends."""
        self._child.kill()

    def leave(self) -> None:
        """End it, and wait for that. Not while it is busy."""
        if not self._child.has_ended:
            self._child.kill()
            self._child.wait()


class Residents:
    """Those of one build that have nothing to do. ``work`` is a folder for their logs and temporary files."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._started = 0
        self._idle: list[Resident] = []

    def take(self, kind: str, command: Sequence[str], *, cwd: Path, env: Callable[[Path], dict[str, str]]) -> Resident:
        """One of that kind and command that is idle, or a new one.

        :param env: the environment for a process with temporary files in a folder.
        """
        for resident in self._idle:
            if (resident.kind, resident.command) == (kind, tuple(command)):
                self._idle.remove(resident)
                return resident
        self._started += 1
        folder = self._work / f"resident-{self._started}"
        folder.mkdir()
        return Resident(kind, command, cwd=cwd, env=env(folder), log=folder / "log")

    def give_back(self, resident: Resident, *, fit: bool) -> None:
        """Keep one for its next assignment. One that is not fit, or is worn, ends."""
        if fit and not resident.is_worn:
            self._idle.append(resident)
        else:
            resident.leave()

    def dismiss(self, idle_for: float = _STAYS) -> None:
        """End those that have been without an assignment for so many seconds."""
        for resident in [r for r in self._idle if time.monotonic() - r.idle_since >= idle_for]:
            self._idle.remove(resident)
            resident.leave()


def _write(log: Path, text: bytes) -> None:
    with contextlib.suppress(OSError), open_fresh(log) as file:  # a full disk: what was made does not depend on it
        file.write(text)
