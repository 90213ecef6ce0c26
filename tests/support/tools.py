"""Programs that tests use where the machine has them. One that is there and does not work is as good as none."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

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


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark tests that are skipped, with the reason, where one of these programs does not work."""
    return pytest.mark.needs(*names)


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
