"""Programs of the machine: whether they work, and running them in a folder, at a terminal, as another user, under wine."""

import io
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

PEAK = "int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
"""Python for a child process: kilobytes of memory at the peak, on Linux. ``ru_maxrss`` is not a less than the parent's."""

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process at once: on Windows ``os.kill`` does that with any signal."""

_ASKED = {"docker": ("info",), "weed": ("version",)}
"""How to find out whether a program works, where that is not ``--version``."""


def tool(name: str) -> str:
    """The path of a program that works here; the test is skipped where there is none, with the reason."""
    path, why = _look(name)
    if not path:
        pytest.skip(why)
    return path


def has(*names: str) -> bool:
    """Whether programs work here."""
    return all(_look(name)[0] for name in names)


def posix(what: str) -> pytest.MarkDecorator:
    """Mark tests of something that Windows has not."""
    return pytest.mark.skipif(os.name != "posix", reason=f"Windows has no {what}")


def need_nvcc() -> None:
    """Skip a test on Windows, where no device code is compiled: stand-ins for nvcc are not even asked."""
    if os.name == "nt":
        pytest.skip("Windows has no nvcc that flashdepot could start")


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark tests that are skipped, with the reason, where one of these programs does not work."""
    return pytest.mark.needs(*names)


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    """Write texts by their names in a folder, with the folders that they need."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@cache
def _look(name: str) -> tuple[str, str]:
    path = shutil.which(name)
    if path is None:
        return "", f"needs {name}"
    words = [path, *_ASKED.get(name, ("--version",))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"needs {name}, and {path} does not run: {error}"
    if done.returncode:
        said = (done.stderr or done.stdout).strip().partition("\n")[0]
        return "", f"needs {name}, and {path} does not work: {said or f'exit code {done.returncode}'}"
    return path, ""


def flashdepot_in(folder: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run flashdepot in a folder, with more variables. Its own Python is isolated from what is there."""
    other = {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-m", "flashdepot", *map(str, words)],
        cwd=folder,
        env={**{name: value for name, value in os.environ.items() if name not in other}, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return _without_bug(done)


def _without_bug(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The same; a bug in flashdepot ends the test, whatever it looks for."""
    assert not re.search("Traceback|Internal error", done.stderr), done.stderr
    return done


def flashdepot_here(*words: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run flashdepot in this process, in a folder and with more variables: as a process of its own, in a tenth of the time."""
    from flashdepot.cli import run  # noqa: PLC0415  (most tests need no command line)

    line = ["flashdepot", *map(str, words)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", line)
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr("flashdepot.process.run._listeners", [])  # -v adds one for the rest of the process
        for name, value in {"FLASHDEPOT_OFFLINE": os.environ.get("FLASHDEPOT_OFFLINE", ""), **variables}.items():
            patch.setenv(name, value)  # --offline sets the first
        if cwd is not None:
            patch.chdir(cwd)
        code = run()
    said = [stream.buffer.getvalue().decode(errors="surrogateescape") for stream in (out, err)]  # type: ignore[attr-defined]
    return _without_bug(subprocess.CompletedProcess(line, code, *said))


def run_program(command: Sequence[object], **how: Any) -> str:
    """Run a program, which must succeed: what it writes to standard output."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return str(done.stdout)


def assert_ends(done: Any, code: int, *said: str) -> None:
    """A command ended with that exit code, and said these words on standard error."""
    ended, errors = (done.returncode, done.stderr) if hasattr(done, "stderr") else (done.code, done.err)
    assert (ended, [words for words in said if words not in errors]) == (code, []), errors


def contents(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder: the bytes of files, and where links lead."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@contextmanager
def unchanged(place: Any) -> Iterator[None]:
    """What is done here leaves everything in a folder, or in what has contents of its own, as it was."""
    look = partial(contents, place) if isinstance(place, Path) else place.contents
    before = look()
    yield
    assert look() == before


_LIMIT = 120.0


@dataclass(frozen=True)
class Seen:
    """The exit code, what stood on standard output, and what the terminal showed."""

    status: int
    stdout: str
    shown: str


def at_a_terminal(
    *words: str, types: Mapping[str, str] | None = None, cwd: Path, environment: Mapping[str, str] | None = None
) -> Seen:
    """Run flashdepot with standard input and error on a terminal, and standard output in a pipe.

    :param types: what is typed when the terminal shows a text, once each.
    """
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminal")

    controlling, terminal = pty.openpty()
    command = [sys.executable, "-m", "flashdepot", *words]
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "200", **(environment or {})}
    with subprocess.Popen(
        command, cwd=cwd, env=variables, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        os.close(terminal)
        shown, left, ends = "", dict(types or {}), time.monotonic() + _LIMIT
        while time.monotonic() < ends:
            if select.select([controlling], [], [], 0.2)[0]:
                try:
                    shown += os.read(controlling, 65536).decode(errors="replace")
                except OSError:  # nobody has the terminal open any more
                    break
            for text in [text for text in left if text in shown]:
                os.write(controlling, left.pop(text).encode())
        else:
            process.kill()
        stdout, _ = process.communicate()
    os.close(controlling)
    return Seen(process.returncode, stdout.decode(), shown)


ROOT = Path(__file__).parents[2]

needs_users = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="acts as several users: needs root and setpriv",
)


@dataclass(frozen=True)
class User:
    """A user by number, and the further groups of that user. None of them needs an account."""

    uid: int
    groups: tuple[int, ...] = ()

    def run(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program.

        It may read all there is, because the interpreter of the tests and their folders may be root's own; it writes,
        renames and removes what this user may.
        """
        groups = ["--groups", ",".join(map(str, self.groups))] if self.groups else ["--clear-groups"]
        reads = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"]
        me = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", *groups, *reads]
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]), "HOME": "/nonexistent"}
        allowed = {name: value for name, value in os.environ.items() if not name.startswith(("FLASHDEPOT", "SUDO"))}
        return subprocess.run(
            [*me, *map(str, words)],
            env={**allowed, **paths, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def python(self, code: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a piece of Python; ``words`` are its ``sys.argv[1:]``."""
        return self.run(sys.executable, "-B", "-c", code, *words, **environment)

    def flashdepot(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return self.run(sys.executable, "-B", "-m", "flashdepot", *words, **environment)


PREFIX_VARIABLE = "FLASHDEPOT_TEST_WINEPREFIX"


@dataclass(frozen=True)
class Wine:
    """A wine and the folder that it takes for a Windows machine."""

    program: str
    prefix: Path

    def environment(self, **more: str) -> dict[str, str]:
        """The variables to run it with: quiet, without a display, with nothing of this process that steers Windows."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        quiet = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml=", "DISPLAY": ""}
        return {**kept, **quiet, "LC_ALL": "C.UTF-8", "WINEPREFIX": str(self.prefix), **more}

    def command(self, *arguments: str) -> list[str]:
        """A command line of Windows as one of this system."""
        return [self.program, *arguments]

    def run(self, *arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Windows to its end; ``more`` are variables."""
        return subprocess.run(
            self.command(*arguments),
            cwd=cwd,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )


def windows_path(path: Path) -> str:
    """A path of this system as wine's programs see it: drive Z: is the root."""
    return "Z:" + str(path).replace("/", "\\")
