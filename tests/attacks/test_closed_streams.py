"""Streams that are closed, a folder that is gone, limits that are small, Ctrl-C at any moment: an answer, never a fault."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a POSIX shell sets up what is wrong")

FAULTS = ("Internal error", "Traceback", "AttributeError", "Exception ignored")


def run_in_shell(setup: str, words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = f"{setup.replace('COMMAND', f'{sys.executable} -m flashdepot {words}')}"
    env = {**os.environ, "FLASHDEPOT_HOME": str(folder / "depot"), **variables}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--version", "depot path --json"])
def test_closed_streams_are_as_if_nobody_read_them(tmp_path: Path, closed: str, words: str) -> None:
    done = run_in_shell(f"COMMAND {closed}", words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (done.stdout != "") == (">&-" not in closed.replace("2>&-", ""))


def test_no_file_that_is_written_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    run_in_shell("COMMAND <&- >&- 2>&-", "host --save here.json", tmp_path)
    assert (tmp_path / "here.json").read_text().startswith("{")


@pytest.mark.parametrize("words", ["resolve", "depot ls", "get --profile quick"])
def test_a_folder_that_is_gone_is_named(tmp_path: Path, words: str) -> None:
    done = run_in_shell('mkdir gone && cd gone && rmdir "$PWD" && COMMAND', words, tmp_path)
    assert done.returncode == 2
    assert "The current folder cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("setup", "words", "said"),
    [
        ("ulimit -f 0; COMMAND", "host --save here.json", "ulimit -f"),
        ("ulimit -f 0; COMMAND", "remote add a file:///nowhere --unsigned", "ulimit -f"),
        ("ulimit -n 7; COMMAND", "resolve", "ulimit -n"),
        ("XDG_CONFIG_HOME=/etc/passwd COMMAND", "keys ls", "cannot be read: Not a directory"),
        ("mkdir -p x/flashdepot/remotes.toml; XDG_CONFIG_HOME=$PWD/x COMMAND", "remote ls", "Is a directory"),
        ("ln -s here here; XDG_CONFIG_HOME=$PWD/here COMMAND", "keys add x.pub", ""),
    ],
)
def test_what_the_system_refuses_is_said_with_the_limit(tmp_path: Path, setup: str, words: str, said: str) -> None:
    done = run_in_shell(setup, words, tmp_path)
    assert done.returncode in {2, 3}, done.stderr
    assert said in done.stderr
    assert not [fault for fault in FAULTS if fault in done.stderr]


def test_ctrl_c_at_any_moment_shows_no_traceback(tmp_path: Path) -> None:
    """From the first our import to the end. What came before is the start of Python itself."""
    chance = random.Random(1)
    env = {**os.environ, "FLASHDEPOT_HOME": str(tmp_path / "depot")}
    begin = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "print(flush=True); sys.argv = ['flashdepot', 'resolve', '--json']\n"
        "from flashdepot.__main__ import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); main()\n"
    )
    for _ in range(15):
        with subprocess.Popen(
            [sys.executable, "-c", begin], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(chance.random() * 0.8)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        assert not [fault for fault in FAULTS if fault in said], said
