"""Remotes that do not answer cost little, and those that are not there nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from flashdepot import remotes
from flashdepot.events import Events
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import PATIENCE, RemoteSettings
from flashdepot.net import waiting as workers
from support.machines import Party
from support.servers import serve_remote


def silent_addresses(count: int) -> Iterator[list[str]]:
    """Addresses of servers that take a connection and never say a word."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        yield [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]


@pytest.fixture
def silent() -> Iterator[list[RemoteSettings]]:
    for addresses in silent_addresses(5):
        yield [RemoteSettings(f"silent{number}", url, timeout=1.0) for number, url in enumerate(addresses)]


def test_several_remotes_that_never_answer_cost_together_little_more_than_one(
    pushed: Manifest, reader: Party, team: RemoteSettings, silent: list[RemoteSettings]
) -> None:
    began = time.monotonic()
    assert reader.fetch(*silent) is None
    assert time.monotonic() - began < len(silent), "they were asked one after the other"
    assert sum("is not used from here on" in warning for warning in reader.warnings) == len(silent)
    began = time.monotonic()
    assert reader.fetch(*silent, replace(team, timeout=30)) == pushed, "one behind them that answers is heard"
    assert time.monotonic() - began < len(silent)


class Standstill:
    """A clock that only waiting moves, and threads of which only those of some remotes ever run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alive: set[str]) -> None:
        self.now = 0.0
        clock = self

        class Event:
            is_set = False

            def set(self) -> None:
                self.is_set = True

            def wait(self, seconds: float) -> bool:
                clock.now += 0.0 if self.is_set else seconds
                return self.is_set

        class Thread:
            def __init__(self, target: Callable[[], None], daemon: bool, name: str) -> None:
                self.run = target if name in {f"remote {one}" for one in alive} else lambda: None

            def start(self) -> None:
                self.run()

        for module in (remotes, workers):
            monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(workers, "threading", SimpleNamespace(Event=Event, Thread=Thread))

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("alive", [None, 0, 3, 5], ids=["none alive", "the first", "the fourth", "the last"])
def test_six_remotes_of_which_five_or_six_are_dead_have_the_time_of_one(
    reader: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: int | None
) -> None:
    everywhere = [RemoteSettings(f"r{n}", f"file://{tmp_path}/{n}", unsigned=True) for n in range(6)]
    for folder in range(6):
        (tmp_path / str(folder)).mkdir()
    clock = Standstill(monkeypatch, set() if alive is None else {f"r{alive}"})
    assert reader.fetch(*everywhere) is None
    assert clock.now == pytest.approx(PATIENCE)
    assert reader.fetch_unit(*everywhere) is None
    assert clock.now == pytest.approx(2 * PATIENCE)
    assert reader.remotes(*everywhere).fetch_recipe(reader.depot, "a" * 64, Events()) is None
    assert clock.now == pytest.approx(3 * PATIENCE)


def test_while_the_first_remote_answers_nobody_else_is_asked(
    pushed: Manifest, reader: Party, team: RemoteSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remotes, "_IMPATIENT", 60)
    with serve_remote() as second:
        assert reader.fetch(team, RemoteSettings("second", second.url)) == pushed
        assert reader.fetch_unit(team, RemoteSettings("second", second.url)) is not None
        assert not second.seen


def test_who_has_no_remote_imports_nothing_that_speaks_with_one(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from flashdepot.depot import open_depot\n"
        "from flashdepot.events import Events\n"
        "from flashdepot.cli.common import configured_remotes\n"
        "from support.depots import make_request\n"
        "REQUEST = make_request()\n"
        "before = set(sys.modules)\n"
        "remotes = configured_remotes()\n"
        "depot = open_depot()\n"
        "assert remotes.offers(REQUEST) is None\n"
        "assert remotes.fetch_library(depot, REQUEST, Events()) is None\n"
        "assert remotes.fetch_recipe(depot, 'a' * 64, Events()) is None\n"
        "remotes.fetch_actions(depot, {'a' * 64}, lambda _: None, print)\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        "XDG_CONFIG_HOME": str(tmp_path),
        "FLASHDEPOT_HOME": str(tmp_path / "depot"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    modules = done.stdout.split()
    unwanted = ("securesystemslib", "cryptography", "requests", "urllib3", "obstore")
    assert [
        m
        for m in modules
        if m.startswith((*unwanted, "flashdepot.remotes.")) and m != "flashdepot.remotes.user_settings"
    ] == []
