"""What an environment must be and have before anything is changed in it."""

from __future__ import annotations

from packaging.version import Version

from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.install.environment import Environment
from flashdepot.model.target import Platform

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
        marked = ", and marked as not to be installed into (PEP 668)" if environment.is_marked else ""
        raise UsageError(
            f"{python} is the system's Python, not that of an environment{marked}: what other programs need could "
            "break.",
            hint=f"Make one: {python} -m venv .venv && .venv/bin/pip install torch einops (or: uv venv && uv pip "
            "install torch einops), then: flashdepot install --python .venv/bin/python",
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


def platform_of(environment: Environment) -> Platform:
    """The system and CPU that an environment's interpreter is for."""
    if environment.platform.startswith("win-"):
        machine = environment.platform.partition("-")[2]
        return Platform("windows", _WINDOWS_MACHINES.get(machine, machine))
    return Platform.parse(environment.platform)


def _pip(environment: Environment) -> str:
    python = environment.python
    return f"{python} -m pip" if environment.packages["pip"] else f"uv pip --python {python}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
