"""The one way to start a Python interpreter: isolated from where, and by whom, flashdepot is run."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.system.process import Finished, run


def run_python(
    program: str | Path,
    arguments: Sequence[str],
    *,
    timeout: float,
    variables: Mapping[str, str] = os.environ,
    on_start: Callable[[int], None] = lambda _: None,
) -> Finished:
    """Run an interpreter, whose own environment alone decides what it imports, and write no bytecode.

    ``-I`` keeps out the folder of the script, ``PYTHON*`` variables and the user's site. Beyond that, programs that it
    starts get no ``PYTHON*`` variables either, and it runs in its own folder: an empty part of ``LD_LIBRARY_PATH``, and
    Windows' search for a DLL, mean the current folder. Its ``.pth`` files and ``sitecustomize`` are its own business.

    :param program: as it was named: the link in ``bin`` is what makes an interpreter that of a virtual environment.
    :param arguments: a script with its arguments, or ``-c`` and ``-m`` with theirs.
    :param timeout: seconds after which it is killed.
    :param variables: the environment variables to start from.
    :param on_start: called with its process id.
    :raises MissingToolError: when it cannot be started.
    :raises FlashdepotError: when it does not end in time.
    """
    path = os.path.abspath(program)  # noqa: PTH100  (Path.resolve would follow the link)
    kept = {name: value for name, value in variables.items() if not name.upper().startswith("PYTHON")}
    kept.pop("__PYVENV_LAUNCHER__", None)  # names another interpreter's folder on macOS
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    with contextlib.suppress(OSError):  # a shim of pyenv chooses a version by the folder of the user, if that is there
        kept.setdefault("PYENV_DIR", os.getcwd())  # noqa: PTH109
    command = [path, "-I", "-B", *arguments]
    return run(command, cwd=Path(path).parent, env=kept, timeout=timeout, on_start=on_start)


class Answer(msgspec.Struct, frozen=True):
    """What an interpreter answered: a JSON document, or ``None`` and the last that was heard of it."""

    document: Any
    last_words: str


def ask_python(program: str | Path, script: str | Path, *, timeout: float) -> Answer:
    """Run a script, a file or its text, that prints one line: its first argument, and then a JSON document.

    :raises MissingToolError: when the interpreter cannot be started.
    :raises FlashdepotError: when it does not end in time.
    """
    word = secrets.token_hex(8)
    start = [str(script)] if isinstance(script, Path) else ["-c", script]
    done = run_python(program, [*start, word], timeout=timeout)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    last_words = said[-1].strip() if said else f"it ended with exit code {done.status} and said nothing"
    lines = [line for line in done.stdout.splitlines() if line.startswith(word)]
    try:
        return Answer(json.loads(lines[-1][len(word) :]), last_words)
    except (IndexError, ValueError):
        return Answer(None, last_words)
