"""Running other programs."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.system.bound import bound
from flashdepot.system.trace import trace

_LAST_OUTPUT = 2.0
"""Seconds for the output of a program that has ended; what it left running may hold the pipe open for ever."""


class Finished(msgspec.Struct, frozen=True):
    """A program that ran: its exit status and what it wrote."""

    arguments: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams, errors last."""
        return self.stdout + self.stderr


def run(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    stdin: str = "",
    encoding: str | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    may_ask: bool = False,
    descriptors: Sequence[int] = (),
) -> Finished:
    """Run a program to its end and return what it wrote, whatever its exit status.

    What it started and left running is not waited for, although it may hold the output open; it ends with this process.

    :param timeout: seconds after which it is killed.
    :param encoding: of what it reads and writes; that of the locale when ``None``.
    :param on_start: called with its process id.
    :param may_ask: it may ask at the terminal, and therefore is not bound to end when this process is killed.
    :param descriptors: open files that it and its descendants keep open, such as a lock's; not on Windows.
    :raises MissingToolError: when the program is not there or cannot be started.
    :raises FlashdepotError: when it does not end in time.
    """
    trace(shlex.join(arguments))
    # Files, not pipes: a pipe ends only when the last process that inherited it does.
    with contextlib.ExitStack() as files:
        try:
            given, stdout, stderr = (files.enter_context(_text_file(encoding)) for _ in range(3))
        except OSError as error:
            raise not_run(arguments[0], error) from error
        given.write(stdin)
        given.seek(0)
        try:
            child = subprocess.Popen(
                list(arguments),
                cwd=cwd,
                env=dict(env) if env is not None else None,
                stdin=given,
                stdout=stdout,
                stderr=stderr,
                pass_fds=descriptors if os.name == "posix" else (),
                **({} if may_ask else bound()),
            )
        except OSError as error:
            raise not_run(arguments[0], error) from error
        _wait(child, arguments[0], timeout, on_start)
        stdout.seek(0)
        stderr.seek(0)
        return Finished(tuple(arguments), child.returncode, stdout.read(), stderr.read())


def run_shown(arguments: Sequence[str], log: IO[bytes], show: Callable[[bytes], None]) -> int:
    """Run a program in the foreground, where it may ask at the terminal, and return its exit status as a shell does.

    What it writes on both streams is read as it comes and goes to the log. What it started and left running is not
    waited for.

    :param show: called with each piece of the output.
    :raises MissingToolError: when the program is not there or cannot be started.
    """
    trace(shlex.join(arguments))
    output, given = os.pipe()
    try:
        child = subprocess.Popen(list(arguments), stdout=given, stderr=given)
    except OSError as error:
        os.close(output)
        raise not_run(arguments[0], error) from error
    finally:
        os.close(given)
    ended = threading.Event()

    def copy() -> None:
        while (piece := os.read(output, 1 << 16)) and not ended.is_set():
            log.write(piece)
            show(piece)
        os.close(output)

    reader = threading.Thread(target=copy, daemon=True)
    reader.start()
    while True:
        try:
            status = child.wait()
            break
        except KeyboardInterrupt:  # the terminal has sent it to the program as well, which decides what it means
            continue
    reader.join(_LAST_OUTPUT)
    ended.set()
    return status if status >= 0 else 128 - status


def not_run(program: str, error: OSError) -> FlashdepotError:
    """What to say of a program that could not be started."""
    hint = (
        "'ulimit -n' is the limit of this shell: ulimit -n 1024" if error.errno in {errno.EMFILE, errno.ENFILE} else ""
    )
    return MissingToolError(f"'{program}' cannot be run: {error.strerror}.", hint=hint)


def _text_file(encoding: str | None) -> IO[str]:
    """A file without a name: in memory where the system has such, so that no disk is needed."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("output"), "w+", encoding=encoding, errors="replace")
    return tempfile.TemporaryFile("w+", encoding=encoding, errors="replace")


def _wait(child: subprocess.Popen[bytes], program: str, timeout: float, on_start: Callable[[int], None]) -> None:
    """Wait for the end of a child, and end it when its time is up. ``Popen.wait(timeout)`` would look every 50 ms."""
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    try:
        on_start(child.pid)
        child.wait()
    except BaseException:
        child.kill()
        child.wait()  # whoever is interrupted may undo what it did: it must have ended
        raise
    finally:
        timer.cancel()
    if late.is_set():
        raise FlashdepotError(f"'{program}' did not end within {timeout:.0f} s.")


def first_error(output: str) -> str:
    """The first line of a compiler's output that states an error, or its last lines when none does."""
    lines = [line for line in output.splitlines() if line.strip()]
    for line in lines:
        if any(mark in line for mark in ("error", "fatal", "undefined reference", "cannot find", "Killed")):
            return line.strip()
    return "\n".join(lines[-3:])
