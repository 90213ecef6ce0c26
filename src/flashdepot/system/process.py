"""Running other programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashdepot.errors import FlashdepotError, MissingToolError


@dataclass(frozen=True)
class Finished:
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
) -> Finished:
    """Run a program to its end and return what it wrote, whatever its exit status.

    :param timeout: seconds after which it is killed.
    :param encoding: of what it reads and writes; that of the locale when ``None``.
    :param on_start: called with its process id.
    :raises MissingToolError: when the program is not there or cannot be started.
    :raises FlashdepotError: when it does not end in time.
    """
    try:
        child = subprocess.Popen(
            list(arguments),
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding=encoding,
            errors="replace",
        )
    except OSError as error:
        raise MissingToolError(f"'{arguments[0]}' cannot be run: {error.strerror}.") from error
    with child:
        try:
            on_start(child.pid)
            stdout, stderr = child.communicate(stdin, timeout)
        except subprocess.TimeoutExpired as error:
            child.kill()
            raise FlashdepotError(f"'{arguments[0]}' did not end within {timeout:.0f} s.") from error
        except BaseException:
            child.kill()
            child.wait()  # whoever is interrupted may undo what it did: it must have ended
            raise
    return Finished(tuple(arguments), child.returncode, stdout, stderr)
