"""A Python environment: which one is meant, and what its interpreter answers. Nothing of it is imported."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.trust import planted
from flashdepot.model.codec import read
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.limits import joined
from flashdepot.process.run import ask_python

_SCRIPT = Path(__file__).with_name("python_facts.py")
_INSIDE = ("Scripts/python.exe", "python.exe") if os.name == "nt" else ("bin/python", "bin/python3")
_TIMEOUT = 60
_OPTION = "--python"
_TOOL_MARKS = {"uv-receipt.toml": "uv tool", "pipx_metadata.json": "pipx"}


class ChosenPython(msgspec.Struct, frozen=True):
    """The interpreter that is meant, and why; ``program`` is ``None`` where there is none to ask, and why."""

    program: Path | None
    why: str


def choose_python(
    option: str | None = None, variables: Mapping[str, str] = os.environ, folder: Path | None = None
) -> ChosenPython:
    """The interpreter that somebody means, in this order.

    1. What is named: an interpreter, a program on ``PATH``, or the folder of an environment.
    2. The active virtual environment (``VIRTUAL_ENV``), or conda environment (``CONDA_PREFIX``; ``base``, which many
       have active always, comes after 3).
    3. What ``UV_PROJECT_ENVIRONMENT`` names, else the nearest ``.venv``, in the working folder or above it, as uv has it. One that another user may have put there
       (:func:`flashdepot.files.trust.planted`) is not started, and ends the search.
    4. The environment that flashdepot itself is installed in, unless uv or pipx keeps that for flashdepot only: as a
       tool, or for one run in a cache (``uvx``, ``pipx run``).

    :param option: the value of ``--python``.
    :param folder: the working folder.
    """
    if option is not None:
        return ChosenPython(_named(option), f"{_OPTION} {option}")
    conda, base = variables.get("CONDA_PREFIX"), variables.get("CONDA_DEFAULT_ENV") in {"base", "root"}
    active = {"VIRTUAL_ENV": variables.get("VIRTUAL_ENV"), "CONDA_PREFIX": None if base else conda}
    for variable, place in active.items():
        if place and (found := _inside(Path(place))):
            return ChosenPython(found, variable)
    here = Path.cwd() if folder is None else folder
    named = variables.get("UV_PROJECT_ENVIRONMENT")
    if (nearest := (_nearest(here, named) if named else None) or _nearest(here, ".venv")) is not None:
        return nearest
    if base and conda and (found := _inside(Path(conda))):
        return ChosenPython(found, "CONDA_PREFIX")
    own = Path(sys.prefix)
    keepers = [keeper for mark, keeper in _TOOL_MARKS.items() if (own / mark).is_file()]
    if not keepers and any((folder / "CACHEDIR.TAG").is_file() for folder in own.parents):
        keepers = ["uvx"]
    if keepers:
        why = f"no environment is active, no .venv is here or above, and {keepers[0]} keeps flashdepot's own for itself"
        return ChosenPython(None, why)
    return ChosenPython(Path(sys.executable), "flashdepot is installed there")


def look_for_python(option: str | None = None) -> tuple[PythonEnvironment | None, str]:
    """The environment that is meant, by :func:`choose_python`; or ``None``, and why, where none was named."""
    chosen = choose_python(option)
    if chosen.program is None:
        return None, f"It is not known which Python environment is meant: {chosen.why}."
    try:
        return replace(probe_python(chosen.program), found_by=chosen.why), ""
    except FlashdepotError as error:
        if option is not None:
            raise
        return None, f"{error.message} It was chosen because of this: {chosen.why}."


def chosen_environment(environment: PythonEnvironment | None) -> str:
    """Which environment was found, and why that one; empty when it was named, or there is none."""
    if environment is None or not environment.found_by or environment.found_by.startswith(_OPTION):
        return ""
    return f"Environment: {environment.prefix} ({environment.found_by}). For another: {_OPTION} DIR"


def get_installer(python: PythonEnvironment) -> str:
    """How an environment gets an installer. The embeddable Python has no ensurepip."""
    return "Install uv." if python.embedded else f"Install uv, or: {python.command('-m', 'ensurepip')}"


def probe_python(program: Path) -> PythonEnvironment:
    """Run :mod:`flashdepot.host.python_facts` in an interpreter and read its answer."""
    answer = ask_python(program, _SCRIPT, timeout=_TIMEOUT)
    try:
        found = read(answer.document, PythonEnvironment)
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise UsageError(
            f"'{program}' does not answer like a Python: {answer.last_words.rstrip('.')}.",
            hint="Name an interpreter of Python 3.7 or newer: --python /path/to/python",
        ) from error
    installers = ("uv", *found.installers) if shutil.which("uv") else found.installers
    here = Path.cwd() / "flash_attn"
    shadow = str(here) if (here / "__init__.py").is_file() else None
    return replace(found, installers=installers, shadow=shadow)


def _named(python: str) -> Path:
    path = Path(python).expanduser()
    found = _inside(path) if path.is_dir() else shutil.which(str(path))
    if found is None:
        why = "holds no Python environment" if path.is_dir() else "is not a Python interpreter: no such program"
        raise UsageError(
            f"'{python}' {why}.", hint="Name an interpreter or the folder of an environment: --python .venv"
        )
    return Path(found)


def _nearest(folder: Path, name: str) -> ChosenPython | None:
    for place in (folder, *folder.parents):
        venv = place / name
        if (found := _inside(venv)) is None:
            continue
        for path in (venv, found.parent, found, venv / "pyvenv.cfg"):
            if path.is_file() | path.is_dir() and (reason := planted(path)):
                why = f"{path} is not trusted, because {reason}; to use it anyway, name it: --python {joined([venv])}"
                return ChosenPython(None, why)
        return ChosenPython(found, f"the nearest {name}")
    return None


def _inside(folder: Path) -> Path | None:
    return next((folder / name for name in _INSIDE if (folder / name).is_file()), None)
