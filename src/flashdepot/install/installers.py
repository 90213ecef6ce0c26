"""The programs that put a wheel into an environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.install.environment import Environment
from flashdepot.system.process import run

_TIMEOUT = 600
_LINES_SHOWN = 5


def put_wheel(environment: Environment, wheel: Path, on_start: Callable[[int], None]) -> str:
    """Install one wheel file and nothing else: no dependency, no index, no cache, no settings of the user's.

    :param on_start: called with the installer's process id.
    :returns: the installer: ``uv`` or ``pip``.
    :raises MissingToolError: when there is neither.
    :raises IncompatibleError: when the installer refuses, with what it said.
    """
    name, command = _command(environment, wheel)
    settings = ("PIP_", "UV_")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(settings)}
    done = run(command, env=variables, timeout=_TIMEOUT, on_start=on_start)
    if done.status != 0:
        said = "\n  ".join(done.output.strip().splitlines()[-_LINES_SHOWN:])
        raise IncompatibleError(
            f"{name} did not install {wheel.name} into {environment.prefix}; it said:\n  {said}",
            hint=f"The environment is as it was. The command was: {' '.join(command)}",
        )
    return name


def _command(environment: Environment, wheel: Path) -> tuple[str, list[str]]:
    python = str(environment.python)
    if uv := shutil.which("uv"):
        options = ["--no-deps", "--no-index", "--offline", "--no-cache", "--no-config", "--reinstall"]
        return "uv", [uv, "pip", "install", "--python", python, *options, str(wheel)]
    if environment.packages["pip"]:
        options = ["--no-deps", "--no-index", "--no-cache-dir", "--no-compile", "--force-reinstall", "--no-input"]
        return "pip", [python, "-I", "-B", "-m", "pip", "--isolated", "install", *options, str(wheel)]
    raise MissingToolError(
        f"{environment.prefix} has no pip, and there is no uv: nothing here installs wheels.",
        hint=f"Get one: {python} -m ensurepip, or install uv.",
    )
