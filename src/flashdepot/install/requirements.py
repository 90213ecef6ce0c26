"""What an environment must be and have before anything is changed in it."""

from __future__ import annotations

from packaging.version import Version

from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.install.environment import Environment
from flashdepot.model.target import Platform
from flashdepot.model.target import Version as Number

OLDEST_PYTHON = (3, 9)
OLDEST_TORCH = Version("2.2")

_WINDOWS_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def require_environment(environment: Environment) -> None:
    """Check all that can be known before a library is made.

    :raises UsageError: for the system's own Python.
    :raises IncompatibleError: for a Python or a torch that is too old.
    :raises MissingToolError: when torch or einops is not there.
    """
    python, packages = environment.python, environment.packages
    if environment.is_system:
        raise UsageError(
            f"{python} is the system's Python, not that of an environment: what other programs need could break.",
            hint=f"Make one: {python} -m venv .venv && .venv/bin/pip install torch einops, "
            "then: flashdepot install --python .venv/bin/python",
        )
    if environment.version < OLDEST_PYTHON:
        raise IncompatibleError(
            f"{python} is Python {_dotted(environment.version)}; flash-attn needs {_dotted(OLDEST_PYTHON)} or newer.",
            hint="Use an environment of a newer Python: --python PATH",
        )
    if missing := [name for name in ("torch", "einops") if not packages[name]]:
        raise MissingToolError(
            f"{environment.prefix} has no {' and no '.join(missing)}, which flash-attn imports.",
            hint=f"{_pip(environment)} install {' '.join(missing)}",
        )
    if Version(packages["torch"] or "") < OLDEST_TORCH:
        raise IncompatibleError(
            f"{environment.prefix} has torch {packages['torch']}; the wheel needs {OLDEST_TORCH} or newer.",
            hint=f"{_pip(environment)} install --upgrade torch",
        )


def require_platform(environment: Environment, platform: Platform, libc: Number | None) -> None:
    """Check that a library loads in an environment.

    :param libc: the oldest GNU C library that it loads on.
    :raises IncompatibleError: when it does not.
    """
    theirs = _platform(environment)
    if theirs != platform:
        raise IncompatibleError(
            f"{environment.python} is a Python for {theirs}, and the library is for {platform}.",
            hint="Use an environment of a Python for this machine: --python PATH",
        )
    if libc is not None and (environment.libc is None or Number(environment.libc) < libc):
        raise IncompatibleError(
            f"The library needs GNU libc {libc}, and {environment.python} runs on {environment.libc or 'another libc'}.",
            hint="Use a Python of this system: --python PATH",
        )


def _platform(environment: Environment) -> Platform:
    if environment.platform.startswith("win-"):
        machine = environment.platform.partition("-")[2]
        return Platform("windows", _WINDOWS_MACHINES.get(machine, machine))
    return Platform.parse(environment.platform)


def _pip(environment: Environment) -> str:
    python = environment.python
    return f"{python} -m pip" if environment.packages["pip"] else f"uv pip --python {python}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
