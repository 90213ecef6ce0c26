"""How long an answer is waited for."""

import os
import signal
import subprocess
import sys
import time

from support.tools import posix

WAITS = """
import sys
from flashdepot.net.waiting import within
print("waiting", flush=True)
print(within(2.0, "team", sys.stdin.readline).strip())
"""


@posix("SIGSTOP")
def test_a_process_that_was_stopped_has_not_waited_meanwhile() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(child.pid, signal.SIGCONT)
    time.sleep(0.3)  # the time in which it would say that nobody has answered
    said, complained = child.communicate("an answer\n", timeout=30)
    assert (said, complained) == ("an answer\n", "")
