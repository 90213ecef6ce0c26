"""Programs bound to this process: when it ends, however it ends, they end as well."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from typing import Any

# It waits until the last writing end of its standard input is closed, which the system does for a process that is
# killed, and then kills its process group, itself included. -I and -S: it imports nothing of anybody's.
_WATCHER = (sys.executable, "-I", "-S", "-c", "import os; os.read(0, 1); os.killpg(0, 9)")


class _Group:
    """A process group with a watcher in it that ends the whole group after this process.

    The group is not the terminal's foreground group, so a signal to that (Ctrl-C, or ``kill -9`` of it) leaves the
    watcher there to do its work, and programs that ask at the terminal cannot be in it.
    """

    def __init__(self) -> None:
        self._watcher: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()

    def options(self) -> dict[str, Any]:
        """The arguments of ``Popen`` that start a program in the group. Nobody can join it once all in it ended."""
        with self._one_at_a_time:
            if self._watcher is None or self._watcher.poll() is not None:
                self._watcher = subprocess.Popen(_WATCHER, stdin=subprocess.PIPE, cwd="/", **_joining(0))
                atexit.register(self._end, self._watcher)
            return _joining(self._watcher.pid)

    def _end(self, watcher: subprocess.Popen[bytes]) -> None:
        watcher.communicate()  # closes its input, and reaps it


def _joining(group: int) -> dict[str, Any]:
    """The arguments of ``Popen`` for a process group, 0 for one of the program's own."""
    if sys.version_info >= (3, 11):
        return {"process_group": group}
    return {"preexec_fn": lambda: os.setpgid(0, group)}  # type: ignore[attr-defined, unused-ignore]


if sys.platform == "win32":
    from flashdepot.system.windows_job import join_job

    def bound() -> dict[str, Any]:
        """The arguments of ``Popen`` that start a program which ends with this process."""
        with contextlib.suppress(OSError):  # Windows 7 has no job within a job: there programs outlive a kill
            join_job()  # a job's processes start theirs in it
        return {}

else:
    _group = _Group()

    def bound() -> dict[str, Any]:
        """The arguments of ``Popen`` that start a program which ends with this process.

        Such a program cannot ask at the terminal: reading from it would stop it.
        """
        return _group.options()
