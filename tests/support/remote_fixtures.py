from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flashdepot.kernels.fa2 import sources
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from support.machines import Machine, make_machine
from support.parties import Party
from support.remote_server import RemoteServer, serve_remote
from support.stand_in_world import World, make_world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield make_world(tmp_path / "world", monkeypatch)
    sources.published.cache_clear()


@pytest.fixture
def new_machine(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Machine]:
    return lambda name: make_machine(world, tmp_path / name, monkeypatch)


@pytest.fixture
def builder(new_machine: Callable[[str], Machine]) -> Machine:
    return new_machine("builder")


@pytest.fixture
def user(new_machine: Callable[[str], Machine]) -> Machine:
    return new_machine("user")


@pytest.fixture
def server() -> Iterator[RemoteServer]:
    with serve_remote() as running:
        yield running


@pytest.fixture
def new_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Party]:
    monkeypatch.delenv("FLASHDEPOT_OFFLINE", raising=False)
    monkeypatch.delenv("FLASHDEPOT_SIGNING_KEY", raising=False)
    return lambda name: Party(tmp_path / name, monkeypatch)


@pytest.fixture
def maker(new_party: Callable[[str], Party]) -> Party:
    return new_party("maker")


@pytest.fixture
def reader(new_party: Callable[[str], Party]) -> Party:
    return new_party("reader")


@pytest.fixture
def team(server: RemoteServer) -> RemoteSettings:
    """The settings of a remote on that server."""
    return RemoteSettings("team", server.url, timeout=1.0)


@pytest.fixture
def pushed(maker: Party, reader: Party, team: RemoteSettings) -> Manifest:
    """A library and a unit on the remote, signed with a key that the reader trusts."""
    key = maker.key()
    manifest = maker.store()
    maker.push(RemoteSettings("team", team.url, timeout=60.0), manifest)  # only answers that a test delays are late
    reader.trust(key)
    return manifest
