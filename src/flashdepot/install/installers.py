"""The programs that put a wheel into an environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.model.python_environment import Environment
from flashdepot.system.process import run
from flashdepot.system.python import run_python

_TIMEOUT = 600
_LINES_SHOWN = 5
_UV = ("--no-deps", "--no-index", "--offline", "--no-cache", "--no-config", "--reinstall")
_PIP = ("--no-deps", "--no-index", "--no-cache-dir", "--no-compile", "--force-reinstall", "--no-input")


def put_wheel(environment: Environment, wheel: Path, on_start: Callable[[int], None]) -> str:
    """Install one wheel file and nothing else: no dependency, no index, no cache, no settings of the user's.

    :param on_start: called with the installer's process id.
    :returns: the installer: ``uv`` or ``pip``.
    :raises MissingToolError: when there is neither.
    :raises IncompatibleError: when the installer refuses, with what it said.
    """
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    if uv := shutil.which("uv"):
        name, command = "uv", [uv, "pip", "install", "--python", str(environment.executable), *_UV, str(wheel)]
        done = run(command, env=variables, timeout=_TIMEOUT, on_start=on_start)
    elif "pip" in environment.packages:
        name, command = "pip", ["-m", "pip", "--isolated", "install", *_PIP, str(wheel.absolute())]
        done = run_python(environment.executable, command, variables=variables, timeout=_TIMEOUT, on_start=on_start)
    else:
        raise MissingToolError(
            f"{environment.prefix} has no pip, and there is no uv: nothing here installs wheels.",
            hint=f"Get one: {environment.executable} -m ensurepip, or install uv.",
        )
    if done.status != 0:
        said = "\n  ".join(done.output.strip().splitlines()[-_LINES_SHOWN:])
        raise IncompatibleError(
            f"{name} did not install {wheel.name} into {environment.prefix}; it said:\n  {said}",
            hint=f"The environment is as it was. The command was: {' '.join(done.arguments)}",
        )
    return name
