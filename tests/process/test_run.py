"""Running a program: what comes back, and when; and what is left of it."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from flashdepot.errors import FlashdepotError, MissingToolError
from flashdepot.process.run import run
from support.tools import KILL, posix

RUNS_OTHERS = """
import sys
from flashdepot.process.run import run
inner = "import os, time; print(os.getpid(), file=open('inner', 'w'), flush=True); time.sleep(600)"
outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
run([sys.executable, "-c", outer], cwd=sys.argv[1], timeout=600)
"""


def ends(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("sent", [KILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_and_what_it_started_end_with_the_process_that_ran_it(tmp_path, sent) -> None:
    process = subprocess.Popen([sys.executable, "-c", RUNS_OTHERS, str(tmp_path)], stderr=subprocess.DEVNULL)
    inner = tmp_path / "inner"
    while not (inner.exists() and inner.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, sent)
    process.wait(timeout=20)
    assert ends(int(inner.read_text()), 5)


@posix("watcher of a process: a job ends with it")
def test_a_process_that_ends_by_itself_leaves_nobody_behind() -> None:
    code = "import os, psutil\nfrom flashdepot.process.run import run\nrun(['true'])\n"
    code += "print(*[p.pid for p in psutil.Process().children(recursive=True)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (watcher,) = map(int, done.stdout.split())
    assert done.stderr == ""
    assert not psutil.pid_exists(watcher), "it was reaped as well: in a container nobody else does that"


@posix("process groups of a terminal")
def test_a_program_that_may_ask_stays_where_the_terminal_hears_it() -> None:
    group = "import os; print(os.getpgrp())"
    asks, bound = (int(run([sys.executable, "-c", group], may_ask=may_ask).stdout) for may_ask in (True, False))
    assert asks == os.getpgrp()
    assert bound != os.getpgrp()


def test_what_a_program_writes_and_ends_with_comes_back_and_it_reads_nothing() -> None:
    code = "import sys; print('grüße', sys.stdin.read()); print('café', file=sys.stderr); sys.exit(3)"
    done = run([sys.executable, "-X", "utf8", "-c", code], encoding="utf-8")
    assert (done.status, done.stdout, done.stderr) == (3, "grüße \n", "café\n")


def test_a_program_that_leaves_another_running_is_not_waited_for(tmp_path) -> None:
    """The one that it leaves has the output open until it is given to end, which happens after the assertion."""
    stop = tmp_path / "stop"
    left = f"import os, time\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.01)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-S', '-c', {left!r}]); print('done')"
    try:
        assert run([sys.executable, "-I", "-c", code], timeout=60).stdout == "done\n"
    finally:
        stop.touch()


def test_a_program_that_does_not_end_is_ended(tmp_path) -> None:
    started = tmp_path / "started"
    code = f"open({str(started)!r}, 'w').close(); import time; time.sleep(600)"
    with pytest.raises(FlashdepotError, match="did not end within 2 s"):
        run([sys.executable, "-I", "-S", "-c", code], timeout=2)
    assert started.exists()


def test_a_program_that_is_not_there_is_a_missing_tool(tmp_path) -> None:
    with pytest.raises(MissingToolError, match=r"cannot be run: (No such file|The system cannot find|File not found)"):
        run([str(tmp_path / "nothing")])
