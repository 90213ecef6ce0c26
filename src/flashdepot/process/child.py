"""A long-running child process whose cost is measured, and which leaves nothing running when it is stopped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.files.disk import open_fresh
from flashdepot.process.run import start


class Cost(msgspec.Struct, frozen=True):
    """How a child ended: its exit status (negative: the signal), CPU seconds with all descendants, and wall seconds.

    ``peak`` is the largest resident set of a single one of them in bytes, 0 where the system does not tell.
    """

    status: int
    cpu_seconds: float
    wall_seconds: float
    peak: int


def descendants_memory() -> int:
    """Bytes that all descendants of this process hold in memory now."""
    import psutil  # noqa: PLC0415

    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


_WATCH = 0.1
"""Seconds between two checks of what a child on Windows holds."""


class Child:
    """A running program that ends with this process. Its output, both streams in order, goes to a log file."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        descriptors: Sequence[int] = (),
        talks: bool = False,
    ) -> None:
        """Start it.

        :param log: a new file takes the place of one there, so that a link in it is not followed.
        :param talks: it is asked by :meth:`ask`; only its standard error goes to the log then.
        :param descriptors: open files that it and its descendants keep open, such as a lock's; not on Windows.
        """
        self._started = time.monotonic()
        with open_fresh(log) as output:
            stdin, stdout = (subprocess.PIPE, subprocess.PIPE) if talks else (subprocess.DEVNULL, output)
            kept = descriptors if os.name == "posix" else ()
            self._process = start(
                arguments, cwd=cwd, env=dict(env), stdin=stdin, stdout=stdout, stderr=output, pass_fds=kept
            )

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def wait(self) -> Cost:
        """Wait for the end. Called once, from any thread."""
        if hasattr(os, "wait4"):
            _, status, usage = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)  # the child is reaped: tell Popen
            cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        else:
            peak = self._wait_and_watch()
            cpu = self.elapsed
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # an assignment that it did not read
                    stream.close()
        return Cost(self._process.returncode, cpu, self.elapsed, peak)

    def _wait_and_watch(self) -> int:
        """The peak memory of a child on Windows, as it was at the last check."""
        import psutil  # noqa: PLC0415

        peak = 0
        while True:
            with contextlib.suppress(psutil.Error):
                peak = getattr(psutil.Process(self._process.pid).memory_info(), "peak_wset", peak)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_WATCH)
                return peak

    def ask(self, line: bytes) -> bytes:
        """Write a line to it and wait for the line that it answers with; empty, or without its end, when it ends."""
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("it was started with talks=False")
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        answer: bytes = self._process.stdout.readline()
        return answer

    def cpu_seconds(self) -> float:
        """What it has used so far, without descendants that still run; 0 when the system does not say."""
        import psutil  # noqa: PLC0415

        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self._process.pid).cpu_times()
            return times.user + times.system + times.children_user + times.children_system
        return 0.0

    @property
    def has_ended(self) -> bool:
        """Whether :meth:`wait` has seen its end."""
        return self._process.returncode is not None

    def kill(self) -> None:
        """End it and every descendant at once. :meth:`wait` still has to be called."""
        import psutil  # noqa: PLC0415

        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            # Stopped processes start no others: stop until a look finds nobody new, then end them all.
            family: list[psutil.Process] = []
            while new := [p for p in (parent, *parent.children(recursive=True)) if p not in family]:
                for process in new:
                    family.append(process)
                    with contextlib.suppress(psutil.Error):
                        process.suspend()
            for process in family:
                with contextlib.suppress(psutil.Error):
                    process.kill()
