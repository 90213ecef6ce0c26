"""Remotes that do not answer cost little, and those that are not there nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.events import Events
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from support.machines import Party
from support.own_world import CONFIG
from support.servers import serve_remote


@pytest.fixture
def silent() -> Iterator[list[RemoteSettings]]:
    """Servers that take a connection and never say a word."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        addresses = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        yield [RemoteSettings(f"silent{number}", url, timeout=1.0) for number, url in enumerate(addresses)]


def test_a_remote_that_never_answers_costs_its_time_once_and_the_next_one_is_heard(
    pushed: Manifest, reader: Party, team: RemoteSettings, silent: list[RemoteSettings]
) -> None:
    remotes = reader.remotes(*silent, team)
    began = time.monotonic()
    assert remotes.fetch_recipe(reader.depot, pushed.recipe_key, Events()) == pushed
    assert sum("is not used from here on" in warning for warning in reader.warnings) == len(silent)
    first = time.monotonic() - began
    assert first >= len(silent)
    assert remotes.fetch_recipe(reader.depot, pushed.recipe_key, Events()) == pushed
    assert time.monotonic() - began - first < 1


def test_while_the_first_remote_answers_nobody_else_is_asked(
    pushed: Manifest, reader: Party, team: RemoteSettings
) -> None:
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
        CONFIG: str(tmp_path),
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
