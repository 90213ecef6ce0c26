"""Running a program: what comes back, and when."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.system.process import run


def test_what_a_program_reads_writes_and_ends_with_comes_back() -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('café', file=sys.stderr); sys.exit(3)"
    done = run([sys.executable, "-X", "utf8", "-c", code], stdin="grüße", encoding="utf-8")
    assert (done.status, done.stdout, done.stderr) == (3, "GRÜSSE\n", "café\n")


def test_a_program_that_leaves_another_running_is_not_waited_for(tmp_path: Path) -> None:
    """The one that it leaves has the output open until it is told to end, which happens after the assertion."""
    stop = tmp_path / "stop"
    left = f"import os, time\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.01)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-S', '-c', {left!r}]); print('done')"
    try:
        assert run([sys.executable, "-I", "-c", code], timeout=60).stdout == "done\n"
    finally:
        stop.touch()


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = f"open({str(started)!r}, 'w').close(); import time; time.sleep(600)"
    with pytest.raises(FlashdepotError, match="did not end within 2 s"):
        run([sys.executable, "-I", "-S", "-c", code], timeout=2)
    assert started.exists()


def test_a_program_that_is_not_there_is_a_missing_tool(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="cannot be run: No such file"):
        run([str(tmp_path / "nothing")])
