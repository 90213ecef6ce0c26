"""A person at a terminal: a command on a pseudo-terminal, what it shows there, and what is typed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
