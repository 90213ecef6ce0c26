"""A Python environment, asked through its interpreter. Nothing of it is imported, neither here nor there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flashdepot.errors import FlashdepotError, MissingToolError, UsageError
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.system.process import run

_SCRIPT = Path(__file__).with_name("python_facts.py")
_INSIDE = ("Scripts/python.exe", "python.exe") if os.name == "nt" else ("bin/python", "bin/python3")


def probe_python(python: str | None) -> PythonEnvironment | None:
    """The environment of an interpreter, a virtual environment's folder, or, for ``None``, the active one.

    :returns: its facts; ``None`` when it was not named and does not answer.
    :raises UsageError: when what was named is no interpreter.
    :raises MissingToolError: when it is one and does not answer.
    """
    if python is None:
        try:
            return ask(active_python(os.environ))
        except FlashdepotError:
            return None
    return ask(resolve(python))


def active_python(environment: Mapping[str, str]) -> str:
    """The interpreter of the active virtual or conda environment, else the one that runs this program."""
    return activated_python(environment) or sys.executable


def activated_python(environment: Mapping[str, str]) -> str | None:
    """The interpreter of the virtual or conda environment that is active in this shell; ``None`` when none is."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if (folder := environment.get(variable)) and (found := _inside(Path(folder))):
            return str(found)
    return None


def resolve(python: str) -> str:
    """The interpreter that somebody means by a name, a path or an environment's folder.

    :raises UsageError: when there is none.
    """
    path = Path(python).expanduser()
    if path.is_dir():
        if found := _inside(path):
            return str(found)
        raise UsageError(f"{path} holds no Python environment: {path / _INSIDE[0]} is not there.")
    program = shutil.which(str(path))
    if program is None:
        raise UsageError(
            f"'{python}' is not a Python interpreter: no such program.",
            hint="Name an interpreter or the folder of an environment: --python .venv",
        )
    return program


def ask(program: str) -> PythonEnvironment:
    """Run :mod:`flashdepot.host.python_facts` in an interpreter and read its answer.

    :raises MissingToolError: when it fails or answers something else.
    """
    done = run([program, "-B", str(_SCRIPT)], timeout=30)
    try:
        found = PythonEnvironment.from_json(json.loads(done.stdout))
    except (KeyError, TypeError, ValueError, UsageError) as error:
        said = done.stderr.strip().splitlines()
        raise MissingToolError(
            f"'{program}' does not answer as a Python does: {said[-1] if said else 'it said nothing'}",
            hint="Name an interpreter of Python 3: --python /path/to/python",
        ) from error
    installers = list(found.installers)
    if "uv" not in installers and shutil.which("uv"):
        installers.insert(0, "uv")
    here = Path.cwd() / "flash_attn"
    return replace(found, installers=tuple(installers), shadow=str(here) if (here / "__init__.py").is_file() else None)


def _inside(folder: Path) -> Path | None:
    return next((folder / name for name in _INSIDE if (folder / name).is_file()), None)
