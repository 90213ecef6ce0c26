"""Running our scripts with the interpreter of another environment."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.host.python_environment import activated_python
from flashdepot.system.process import Finished, run

_MISSING = {
    "torch": "Install PyTorch there, or name the environment that has it: --python PY",
    "flash_attn": "Install it there, or name the environment that has it: --python PY",
}


def interpreter(option: str | None) -> str:
    """The Python to use: the one that was named, else the active virtual environment's, else the one on PATH.

    :raises MissingToolError: when there is no such program.
    """
    chosen = option or activated_python(os.environ) or "python3"
    program = shutil.which(chosen)
    if program is None:
        raise MissingToolError(f"There is no Python interpreter '{chosen}'.", hint="Name one: --python PY")
    return program


def run_script(python: str, script: str, *arguments: str, timeout: float) -> Any:
    """Run one of this package's scripts there, and return the JSON document that it prints.

    :raises MissingToolError: when that environment lacks torch, flash_attn or a GPU.
    :raises FlashdepotError: when the script fails otherwise, with the end of what it wrote.
    """
    path = Path(__file__).with_name(script)
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH" or python == sys.executable
    }
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # looking at an environment leaves it as it is
    done = run([python, str(path), *arguments], timeout=timeout, env=environment)
    if done.status != 0:
        raise _explain(done, python)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise FlashdepotError(f"{script} printed no result: {done.output[-500:]}") from error


def _explain(done: Finished, python: str) -> FlashdepotError:
    for module, hint in _MISSING.items():
        if f"No module named '{module}'" in done.stderr:
            return MissingToolError(f"{python} has no {module}.", hint=hint)
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it wrote nothing")
    if "NVIDIA driver" in last or "CUDA" in last or "HIP" in last:
        return MissingToolError(
            f"No GPU could be used from {python}: {last}.",
            hint="'flashdepot host' shows the GPUs and the driver that are seen here.",
        )
    return FlashdepotError(f"{python} failed: {last}")
