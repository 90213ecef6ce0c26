"""Running our scripts with the interpreter of another environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.host.python_environment import choose_python
from flashdepot.model.limits import joined
from flashdepot.process.run import Finished, run_python

_ELSEWHERE = "or name the environment that has it: --python PY"


def interpreter(option: str | None) -> Path:
    """The Python to use, by :func:`choose_python`; :raises MissingToolError: when it is not known which one is meant."""
    chosen = choose_python(option)
    if chosen.program is None:
        raise MissingToolError(f"It is not known which Python is meant: {chosen.why}.", hint="Name one: --python .venv")
    return chosen.program


def run_script(python: str | Path, script: str, *arguments: str, timeout: float) -> Any:
    """Run one of this package's scripts there, isolated, and return the JSON document that it prints.

    :raises MissingToolError: when that environment lacks torch, flash_attn or a GPU.
    :raises FlashdepotError: when the script fails otherwise, with the end of what it wrote.
    """
    done = run_python(python, [str(Path(__file__).with_name(script)), *arguments], timeout=timeout)
    if done.status != 0:
        raise _explain(done, python)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise FlashdepotError(f"{script} printed no result: {done.output[-500:]}") from error


def _explain(done: Finished, python: str | Path) -> FlashdepotError:
    for module, how in (
        ("torch", ["doctor", "install"]),  # which knows the command for this environment's installer and GPU
        ("flash_attn", ["install"]),
    ):
        if f"No module named '{module}'" in done.stderr:
            command = joined(["flashdepot", *how, "--python", str(python)])
            return MissingToolError(f"{python} has no {module}.", hint=f"{command}\n{_ELSEWHERE}")
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it wrote nothing")
    if "NVIDIA driver" in last or "CUDA" in last or "HIP" in last:
        return MissingToolError(
            f"No GPU could be used from {python}: {last}.",
            hint="'flashdepot host' shows the GPUs and the driver that are seen here.",
        )
    return FlashdepotError(f"{python} failed: {last}")
