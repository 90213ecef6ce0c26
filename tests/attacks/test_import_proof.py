"""Modules that behave strangely when they are imported: a good one is installed, a bad one is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import forge
from support.venvs import TAG, Run, Venv

anywhere = pytest.mark.parametrize("installer", ["uv"], indirect=True)


def wheel(folder: Path, code: str) -> str:
    files = {"flash_attn/__init__.py": code.encode(), "flash_attn_2_cuda.py": b""}
    return str(forge.wheel(folder, files, tag=TAG))


@anywhere
def test_a_module_that_leaves_a_process_running_is_installed_at_once(
    command: Run, environment: Venv, tmp_path: Path
) -> None:
    """That process holds the output open until the test lets it go, after the installation."""
    left = f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    code = f"import os, time\nif os.fork() == 0:\n    {left}\n    os._exit(0)\n"
    try:
        done = command("--wheel", wheel(tmp_path, code))
        assert done.code == 0, done.err
    finally:
        (tmp_path / "go").touch()


@anywhere
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(0)", "it ended with exit code 0 and said nothing"),
        ("import os; os._exit(7)", "it ended with exit code 7 and said nothing"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with exit code -9 and said nothing"),
        ("import sys; sys.stdout.close()", "I/O operation on closed file"),
        ('print(\'{"version": "2.8.3"}\'); raise SystemExit', "it ended with exit code 0 and said nothing"),
    ],
)
def test_a_module_that_ends_the_process_without_an_answer_is_undone(
    command: Run, environment: Venv, tmp_path: Path, code: str, said: str
) -> None:
    before = environment.contents()
    done = command("--wheel", wheel(tmp_path, code))
    assert done.code == 6, done.err
    assert "does not import there: " in done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert environment.contents() == before


@anywhere
def test_a_module_that_prints_while_and_after_it_is_imported_is_installed(
    command: Run, environment: Venv, tmp_path: Path
) -> None:
    code = "import atexit\nprint('{}')\natexit.register(print, '[1, 2]')\n"
    done = command("--wheel", wheel(tmp_path, code))
    assert done.code == 0, done.err
