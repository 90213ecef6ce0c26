from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flashdepot.depot import Depot
from flashdepot.errors import MissingToolError

Start = Callable[..., subprocess.Popen[str]]


def wait_for_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line, "the process ended before it said anything"
    return line.strip()


def test_a_key_that_another_process_holds_is_refused_at_once_and_other_keys_are_free(depot: Depot, start: Start):
    wait_for_line(start("hold", depot.root, "unit"))
    assert depot.try_lock("unit") is None
    other = depot.try_lock("other")
    assert other
    other.release()


def test_waiting_for_a_key_is_announced_and_ends_when_its_holder_is_killed(depot: Depot, start: Start):
    holder = start("hold", depot.root, "unit")
    wait_for_line(holder)
    announced: list[bool] = []

    def kill_holder() -> None:
        announced.append(True)
        holder.kill()

    with depot.lock("unit", on_wait=kill_holder):
        assert announced == [True]
        assert depot.try_lock("unit") is None


def test_a_free_key_is_held_without_waiting_and_is_free_again_afterwards(depot: Depot):
    with depot.lock("unit", on_wait=lambda: pytest.fail("nobody held it")):
        assert depot.try_lock("unit") is None
    held = depot.try_lock("unit")
    assert held
    with held:
        assert depot.try_lock("unit") is None
    held.release()
    assert depot.try_lock("unit")


def test_a_lock_may_be_released_by_another_thread(depot: Depot):
    held = depot.try_lock("unit")
    assert held
    thread = threading.Thread(target=held.release)
    thread.start()
    thread.join()
    assert depot.try_lock("unit")


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(depot: Depot, monkeypatch: pytest.MonkeyPatch, code: int):
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(MissingToolError, match="no file locks") as caught:
        depot.try_lock("unit")
    assert "--depot DIR" in caught.value.hint


def test_a_workspace_is_there_while_it_is_open_and_gone_when_its_work_fails(depot: Depot):
    def fail_in_workspace() -> Path:
        with depot.workspace() as folder:
            assert list(folder.iterdir()) == []
            (folder / "part.o").write_bytes(b"x")
            raise KeyError(folder)

    with pytest.raises(KeyError) as caught:
        fail_in_workspace()
    assert not caught.value.args[0].exists()
    assert list(depot.layout.temporary.iterdir()) == []
