"""Programs as another user of this machine, with that user's permissions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

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
