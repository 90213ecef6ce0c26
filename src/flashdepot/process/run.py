"""Running other programs, Python interpreters among them: each ends when this process does."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import re
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import msgspec

from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.model.limits import joined

_CREDENTIALS = re.compile(r"(https?://)[^/\s'\"]+@")
_listeners: list[Callable[[str], None]] = []


def listen(listener: Callable[[str], None]) -> None:
    """Call ``listener`` with a line for all that is done outside this process: programs started, files fetched."""
    _listeners.append(listener)


def trace(text: str) -> None:
    """Say it to who listens, without the credentials of any URL."""
    for listener in _listeners:
        listener(without_credentials(text))


def without_credentials(text: str) -> str:
    """A text without the users, passwords and tokens of the URLs in it."""
    return _CREDENTIALS.sub(r"\1", text)


# It waits until the last writing end of its standard input is closed, which the system does for a process that is
# killed, and then kills its process group, itself included. -I and -S: it imports nothing of anybody's.
_WATCHER = (sys.executable, "-I", "-S", "-c", "import os; os.read(0, 1); os.killpg(0, 9)")


_watchers: list[subprocess.Popen[bytes]] = []
_one_at_a_time = threading.Lock()


def _joining(group: int) -> dict[str, Any]:
    """The arguments of ``Popen`` for a process group, 0 for one of the program's own."""
    if sys.version_info >= (3, 11):
        return {"process_group": group}
    return {"preexec_fn": lambda: os.setpgid(0, group)}  # type: ignore[attr-defined, unused-ignore]


if sys.platform == "win32":
    import ctypes

    @cache
    def _join_job() -> None:
        """Put this process into a job of its own. The only handle to it closes when this process ends, and then all end."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = kernel.GetCurrentProcess.restype = ctypes.c_void_p
        kernel.SetInformationJobObject.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        kernel.AssignProcessToJobObject.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        # JOBOBJECT_EXTENDED_LIMIT_INFORMATION (winnt.h): nothing but LimitFlags, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE.
        limits = struct.pack("16xI124x", 0x2000)
        job = kernel.CreateJobObjectW(None, None)
        limited = kernel.SetInformationJobObject(job, 9, limits, len(limits))
        if not (job and limited and kernel.AssignProcessToJobObject(job, kernel.GetCurrentProcess())):
            raise ctypes.WinError(ctypes.get_last_error())

    def _bound() -> dict[str, Any]:
        """The arguments of ``Popen`` that start a program which ends with this process."""
        with contextlib.suppress(OSError):  # Windows 7 has no job within a job: there programs outlive a kill
            _join_job()  # a job's processes start theirs in it
        return {}

else:

    def _bound() -> dict[str, Any]:
        """The arguments of ``Popen`` that start a program which ends with this process.

        It joins the process group of a watcher. That is not the terminal's foreground group, so a signal to that (Ctrl-C,
        or ``kill -9`` of it) leaves the watcher there to do its work, and reading from the terminal would stop the program.
        """
        with _one_at_a_time:
            if not _watchers or _watchers[-1].poll() is not None:  # nobody can join a group once all in it ended
                _watchers.append(subprocess.Popen(_WATCHER, stdin=subprocess.PIPE, cwd="/", **_joining(0)))
                atexit.register(_watchers[-1].communicate)  # closes its input, and reaps it
            return _joining(_watchers[-1].pid)


_LAST_OUTPUT = 2.0
"""Seconds for the output of a program that has ended; what it left running may hold the pipe open forever."""


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
    encoding: str | None = None,
    may_ask: bool = False,
) -> Finished:
    """Run a program to its end and return what it wrote, whatever its exit status.

    What it left running is not waited for, and ends with this process.

    :param timeout: seconds after which it is killed.
    :param encoding: of what it writes; that of the locale when ``None``.
    :param may_ask: it may ask at the terminal, and therefore is not bound to end when this process is killed.
    """
    # Files, not pipes: a pipe ends only when the last process that inherited it does.
    with contextlib.ExitStack() as files:
        try:
            stdout, stderr = (files.enter_context(_text_file(encoding)) for _ in range(2))
        except OSError as error:
            raise _not_run(arguments[0], error) from error
        child = start(
            arguments, may_ask=may_ask, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )
        _wait(child, arguments[0], timeout)
        stdout.seek(0)
        stderr.seek(0)
        return Finished(tuple(arguments), child.returncode, stdout.read(), stderr.read())


def run_shown(arguments: Sequence[str], log: IO[bytes], show: Callable[[bytes], None]) -> int:
    """Run a program in the foreground, where it may ask at the terminal, and return its exit status as a shell does.

    :param show: called with each piece of both streams, as they go to the log.
    """
    output, given = os.pipe()
    try:
        child = start(arguments, may_ask=True, stdout=given, stderr=given)
    except FlashdepotError:
        os.close(output)
        raise
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
        except KeyboardInterrupt as stopped:  # the program decides what it means; the terminal sends it Ctrl-C itself
            if stopped.args:
                child.send_signal(stopped.args[0])
    reader.join(_LAST_OUTPUT)
    ended.set()
    return status if status >= 0 else 128 - status


def start(arguments: Sequence[str], *, may_ask: bool = False, **options: Any) -> subprocess.Popen[bytes]:
    """Start a program with the options of ``Popen``, and say so to who listens; ``may_ask`` as for :func:`run`."""
    trace(joined(arguments))
    try:
        return subprocess.Popen(list(arguments), **options, **({} if may_ask else _bound()))
    except OSError as error:
        raise _not_run(arguments[0], error) from error


def _not_run(program: str, error: OSError) -> FlashdepotError:
    limited = error.errno in {errno.EMFILE, errno.ENFILE}
    hint = "'ulimit -n' is the limit of this shell: ulimit -n 1024" if limited else ""
    return MissingToolError(f"'{program}' cannot be run: {error.strerror}.", hint=hint)


def _text_file(encoding: str | None) -> IO[str]:
    """A file without a name: in memory where the system has such, so that no disk is needed."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("output"), "w+", encoding=encoding, errors="replace")
    return tempfile.TemporaryFile("w+", encoding=encoding, errors="replace")


def _wait(child: subprocess.Popen[bytes], program: str, timeout: float) -> None:
    """Wait for the end of a child, and end it when its time is up. ``Popen.wait(timeout)`` would look every 50 ms."""
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    try:
        child.wait()
    except BaseException:
        child.kill()
        child.wait()  # anyone who is interrupted may undo what it did: it must have ended
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


_KILLED = (-signal.SIGKILL.value, 128 + signal.SIGKILL.value) if hasattr(signal, "SIGKILL") else ()

_MEMORY_MARKS = (
    r"died due to signal 9|--error 0x89\b|out of memory|Killed signal terminated program|virtual memory exhausted"
    r"|Cannot allocate memory|std::bad_alloc"
)


def killed_for_memory(status: int, log: str) -> bool:
    """Whether a compiler, or a phase that nvcc started, was killed by the kernel or ran out of memory by itself."""
    return status in _KILLED or re.search(_MEMORY_MARKS, log, re.IGNORECASE) is not None


def run_python(
    program: str | Path, arguments: Sequence[str], *, timeout: float, variables: Mapping[str, str] = os.environ
) -> Finished:
    """Run an interpreter so that only its own environment decides what it imports; it writes no bytecode.

    ``-I`` keeps out the folder of the script, ``PYTHON*`` variables and the user's site; programs that it starts get none
    of these variables either. It runs in its own folder: an empty part of ``LD_LIBRARY_PATH`` means the current one.

    :param program: as it was named: the link in ``bin`` is what makes an interpreter that of a virtual environment.
    :param variables: the environment variables to start from; the others, and what is raised, as of :func:`run`.
    """
    path = os.path.abspath(program)  # noqa: PTH100  (Path.resolve would follow the link)
    kept = {name: value for name, value in variables.items() if not name.upper().startswith("PYTHON")}
    kept.pop("__PYVENV_LAUNCHER__", None)  # names another interpreter's folder on macOS
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    with contextlib.suppress(OSError):  # a shim of pyenv chooses a version by the folder of the user, if that is there
        kept.setdefault("PYENV_DIR", os.getcwd())  # noqa: PTH109
    command = [path, "-I", "-B", *arguments]
    return run(command, cwd=Path(path).parent, env=kept, timeout=timeout)


class Answer(msgspec.Struct, frozen=True):
    """What an interpreter answered: a JSON document, or ``None`` and the last that was heard of it."""

    document: Any
    last_words: str


def ask_python(program: str | Path, script: str | Path, *, timeout: float) -> Answer:
    """Run a script, a file or its text, that prints a line: its first argument and a JSON document."""
    word = secrets.token_hex(8)
    start = [str(script)] if isinstance(script, Path) else ["-c", script]
    done = run_python(program, [*start, word], timeout=timeout)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    last_words = said[-1].strip() if said else f"it ended with exit code {done.status} and said nothing"
    lines = [line for line in done.stdout.splitlines() if line.startswith(word)]
    try:
        return Answer(json.loads(lines[-1][len(word) :]), last_words)
    except (IndexError, ValueError):
        return Answer(None, last_words)
