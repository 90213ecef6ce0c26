"""Running Windows programs and batch files under wine."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

PREFIX_VARIABLE = "FLASHDEPOT_WINEPREFIX"


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
