"""What a stranger's file, address, shell or system did: an answer, never a fault, and nothing is run by a pasted hint."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashdepot.process import run as running
from flashdepot.process.run import run
from support.tools import flashdepot_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a POSIX shell sets up what is wrong")

URL = "https://user:TOKEN@host/a.git"


@pytest.mark.parametrize(
    "text",
    [
        f"git fetch -- {URL} main",
        f"git -c x='{URL}'",
        f"Fetching {URL.replace('user:TOKEN', 'TOKEN')}",
        URL.replace("KEN", "KEN@x"),
    ],
)
def test_what_verbose_shows_has_no_credentials(monkeypatch, text) -> None:
    said: list[str] = []
    monkeypatch.setattr(running, "_listeners", [said.append])
    running.trace(text)
    assert "TOKEN" not in said[0]
    assert "host/a.git" in said[0]


TOO_MANY = """
import contextlib, resource
from pathlib import Path
from flashdepot.errors import MissingToolError
from flashdepot.process.run import run

held = [Path("/dev/null").open()]
resource.setrlimit(resource.RLIMIT_NOFILE, (held[0].fileno() + 32,) * 2)
with contextlib.suppress(OSError):
    while True:
        held.append(Path("/dev/null").open())
while held:
    try:
        run(["true"])
    except MissingToolError as error:
        print(error.hint)
    held.pop().close()
"""


def test_too_many_open_files_say_how_to_allow_more() -> None:
    """However many are free, from none on: another call of the system is refused each time."""
    hints = run([sys.executable, "-c", TOO_MANY]).stdout.splitlines()
    assert len(hints) > 3  # what it writes takes three files
    assert all("ulimit -n" in hint for hint in hints)


FAULTS = ("Internal error", "Traceback", "AttributeError", "Exception ignored")


def run_in_shell(setup: str, words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Without ``PYTHONUNBUFFERED``: with it, an output that fails shows earlier than it does to users."""
    command = f"{setup.replace('COMMAND', f'{sys.executable} -m flashdepot {words}')}"
    env = {**os.environ, "FLASHDEPOT_HOME": str(folder / "depot"), "PYTHONUNBUFFERED": "", **variables}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--version", "depot path --json"])
def test_closed_streams_are_as_if_nobody_read_them(tmp_path, closed, words) -> None:
    done = run_in_shell(f"COMMAND {closed}", words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (done.stdout != "") == (">&-" not in closed.replace("2>&-", ""))


def test_no_file_that_is_written_takes_the_number_of_a_closed_stream(tmp_path) -> None:
    run_in_shell("COMMAND <&- >&- 2>&-", "host --save here.json", tmp_path)
    assert (tmp_path / "here.json").read_text().startswith("{")


@pytest.mark.parametrize("words", ["resolve", "depot ls", "get --profile quick"])
def test_a_folder_that_is_gone_is_named(tmp_path, words) -> None:
    done = run_in_shell('mkdir gone && cd gone && rmdir "$PWD" && COMMAND', words, tmp_path)
    assert done.returncode == 2
    assert "The current folder cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("setup", "words", "said"),
    [
        ("ulimit -f 0; COMMAND", "host --save here.json", "ulimit -f"),
        ("ulimit -f 0; COMMAND", "remote add a file:///nowhere --unsigned", "ulimit -f"),
        ("ulimit -n 7; COMMAND", "resolve", "ulimit -n"),
        ("COMMAND >/dev/full", "depot path", "No space left on device"),
        ("COMMAND >/dev/full", "depot path --json", "No space left on device"),
        ("COMMAND >/dev/full", "catalog", "No space left on device"),
        ("COMMAND >/dev/full", "catalog ls", "No space left on device"),
        ("COMMAND >/dev/full", "--version", "is full"),
        ("XDG_CONFIG_HOME=/etc/passwd COMMAND", "keys ls", "cannot be read: Not a directory"),
        ("mkdir -p x/flashdepot/remotes.toml; XDG_CONFIG_HOME=$PWD/x COMMAND", "remote ls", "Is a directory"),
        ("ln -s here here; XDG_CONFIG_HOME=$PWD/here COMMAND", "keys add x.pub", ""),
    ],
)
def test_what_the_system_refuses_is_said_with_the_limit(tmp_path, setup, words, said) -> None:
    done = run_in_shell(setup, words, tmp_path)
    assert done.returncode in {2, 3}, done.stderr
    assert said in done.stderr
    assert not [fault for fault in FAULTS if fault in done.stderr]


@pytest.mark.parametrize("words", ["--version", "depot path", "catalog", "catalog ls", "get --help"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_ends_a_command_as_it_ends_others(tmp_path, words, unbuffered) -> None:
    line = "{ COMMAND; echo $? >status; } | { exec <&-; while ! test -s status; do sleep 0.02; done; }"
    done = run_in_shell(line, words, tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert not [fault for fault in FAULTS if fault in done.stderr], done.stderr
    assert (tmp_path / "status").read_text().strip() == str(128 + signal.SIGPIPE)


@pytest.mark.parametrize(("words", "code"), [("depot path", 0), ("depot verfy", 2)])
def test_messages_that_cannot_be_written_change_no_exit_code(tmp_path, words, code) -> None:
    assert run_in_shell("COMMAND 2>/dev/full", words, tmp_path).returncode == code


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_command_that_a_signal_stops_ends_by_it(name) -> None:
    """So that a loop of a shell ends with it. The end of a terminal leaves no files behind either."""
    number = getattr(signal, name)
    heard = f"import os, signal, sys; signal.signal(signal.{name}, signal.SIG_DFL)"  # also where these tests run under nohup
    command = f"{heard}; os.execv(sys.executable, [sys.executable, '-m', 'flashdepot', 'explain', '-'])"
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write(b"x" * 1_000_000)  # more than a pipe holds: it is read
        time.sleep(0.5)  # and waits for more: Python asks for signals only where a read was interrupted
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert "Stopped" in said.decode()
    assert process.returncode == -number


def test_a_program_that_explain_runs_ends_when_explain_is_asked_to() -> None:
    asks = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    begun = time.monotonic()
    done = run([sys.executable, "-m", "flashdepot", "explain", "--", sys.executable, "-c", asks], timeout=50)
    assert (done.status, time.monotonic() - begun < 40) == (128 + signal.SIGTERM, True)


def test_a_command_that_nohup_started_outlives_its_terminal() -> None:
    command = ["nohup", sys.executable, "-m", "flashdepot", "explain", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin
        process.stdin.write(b"x" * 1_000_000)
        time.sleep(0.5)
        process.send_signal(signal.SIGHUP)
        process.stdin.close()
    assert process.returncode == 4


def test_ctrl_c_at_any_moment_shows_no_traceback(tmp_path) -> None:
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


NAMES = ["x;touch pwned #", "$(touch pwned)", "`touch pwned`", "a b", "it's", "&touch pwned&"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        ("project/flashdepot.toml", 'cuda = "/opt/cuda"\n', ["resolve"]),
        ("config/flashdepot/remotes.toml", "torn", ["remote", "ls"]),
        ("config/flashdepot/keys.toml", "torn", ["keys", "ls"]),
        ("config/flashdepot/trusted.json", "torn", ["trust", "--list"]),
    ],
)
def test_pasting_a_hint_runs_nothing_that_a_folders_name_says(tmp_path, name, file, text, command) -> None:
    world = tmp_path / name
    path = world / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (world / "project").mkdir(exist_ok=True)
    places = {"XDG_CONFIG_HOME": str(world / "config"), "FLASHDEPOT_HOME": str(world / "depot")}
    done = flashdepot_in(world / "project", *command, **places, FLASHDEPOT_OFFLINE="1")
    hints = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
    for hint in hints:
        pasted = hint.rpartition(": ")[2].replace("flashdepot ", "true ", 1)
        subprocess.run(["sh", "-c", pasted], capture_output=True, check=False, cwd=tmp_path)
    assert not (tmp_path / "pwned").exists(), hints
    assert sorted(tmp_path.iterdir()) == [world]
