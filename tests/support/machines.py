"""Machines and users with depots, settings and keys of their own; stand-ins build a library in a second."""

import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from flashdepot import host
from flashdepot.cli.app import app
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.errors import FlashdepotError, IntegrityError, NetworkError
from flashdepot.events import Events
from flashdepot.host.probe import this_platform
from flashdepot.kernels import fa2
from flashdepot.kernels.c_layer import c_layer_digest
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.model.request import Request
from flashdepot.model.wheel import platform_tag
from flashdepot.net import fetch as net
from flashdepot.net.fetch import offline
from flashdepot.process.confinement import UNCONFINED
from flashdepot.remotes import Remotes
from flashdepot.remotes import push as pushing
from flashdepot.remotes.keys import new_key
from flashdepot.remotes.push import Pushed, push
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.toolchain import wheels, zig
from support.depots import make_record, make_request, record_unit, store_library
from support.own_world import CONFIG
from support.servers import RemoteServer, serve_remote
from support.tools import need_nvcc
from support.upstreams import cutlass_files, make_sdist, sdists_toml, tree_files

VERSION = "9.9.9"
_SDIST = f"flash_attn-{VERSION}.tar.gz"
_TOOL = Path(__file__).with_name("stand_in_tools.py")
_FILES = {
    "bin/cudafe++": b"cudafe++",
    "bin/ptxas": b"ptxas",
    "bin/fatbinary": b"fatbinary",
    "bin/nvcc.profile": b"profile",
    "nvvm/bin/cicc": b"cicc",
    "nvvm/libdevice/libdevice.10.bc": b"libdevice",
    "include/cuda_runtime.h": b"#pragma once\n",
    "include/cuda_fp16.h": b"#pragma once\n",
    "include/crt/host_config.h": b"#if __GNUC__ > 99\n#endif\n",
}


@dataclass(frozen=True)
class World:
    """A depot, and what its programs and sources must be. ``run`` is flashdepot in this process."""

    root: Path
    journal: Path
    index: Path

    def run(self, *arguments: str) -> Any:
        """Run a command of flashdepot on the depot and return its JSON document; raises what it ends with."""
        done = CliRunner().invoke(app, [*arguments, "--depot", str(self.root), "--json"], standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        if done.return_value:
            raise FlashdepotError(done.stderr)
        return json.loads(done.stdout)

    def get(self, command: str = "get", *options: str) -> Any:
        """Get, build or make a wheel of the small library."""
        wish = ("--upstream", VERSION, "--profile", "quick", "--arch", "80,90", "--cuda", "13.0")
        return self.run(command, *wish, *options)

    def used(self) -> set[str]:
        """The SHA-256 of every program that ran and of every file that was compiled."""
        return set(self.journal.read_text().split()) if self.journal.exists() else set()


def make_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Pin a small sdist and a stand-in toolkit, which come from a folder in place of an index."""
    need_nvcc()
    monkeypatch.setenv(UNCONFINED, "1")  # the compilers keep a journal
    index = folder / "index"
    index.mkdir(parents=True)
    sdist = make_sdist(VERSION, tree_files(VERSION) | cutlass_files("csrc/cutlass/"))
    (index / _SDIST).write_bytes(sdist)
    sdists_toml(folder / "sdists.toml", VERSION, sdist)
    monkeypatch.setattr(fa2, "DATA", folder / "sdists.toml")
    fa2.published.cache_clear()
    pinned, pinned_zig = _pack_toolkit(index), _pack_zig(index)
    monkeypatch.setattr(wheels, "_data", lambda: pinned)
    monkeypatch.setattr(zig, "_data", lambda: pinned_zig)

    def fetch(_project: str, filename: str, sha256: str, destination: Path, **_: Any) -> Path:
        if destination.is_file() and hashlib.sha256(destination.read_bytes()).hexdigest() == sha256:
            return destination
        if offline():
            raise NetworkError(f"{filename} needs the network")
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(index / filename, destination)
        if hashlib.sha256(destination.read_bytes()).hexdigest() != sha256:
            raise IntegrityError(f"{filename} is not what is pinned")
        return destination

    monkeypatch.setattr(net, "fetch", fetch)
    monkeypatch.setattr(pushing, "_PAUSE", (0.01, 0.02))
    # The machine's own toolkits would be taken before the stand-in.
    probe = host.probe
    monkeypatch.setattr(host, "probe", lambda **options: replace(probe(**options), toolkits=()))
    monkeypatch.setenv("STAND_IN_JOURNAL", str(folder / "journal"))
    return World(folder / "depot", folder / "journal", index)


def _pack_toolkit(index: Path) -> dict[str, Any]:
    files = {**_FILES, "bin/nvcc": f"#!{sys.executable} -S\n{_TOOL.read_text()}".encode()}
    wheels = _pack(index, "nvcc", "nvidia/cu13", files)
    tree = digest_of({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    return {"cuda": "13.0.88", "wheels": wheels, "tree": {str(this_platform()): tree}}


def _pack_zig(index: Path) -> dict[str, Any]:
    files = {"zig": f"#!{sys.executable} -S\n{_TOOL.read_text()}".encode(), "lib/compiler_rt.zig": b"const x = 1;\n"}
    return {
        "zig": [{"version": "0.14.1", "preprocesses_from": "12.0", "wheels": _pack(index, "zig", "ziglang", files)}]
    }


def _pack(index: Path, project: str, inside: str, files: dict[str, bytes]) -> dict[str, str]:
    wheel = index / f"{project}-1-py3-none-{platform_tag(this_platform(), None)}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(f"{inside}/{name}")
            info.external_attr = (0o100755 if name.startswith(("bin/", "nvvm/bin", "zig")) else 0o100644) << 16
            archive.writestr(info, data)
    return {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest()}


@dataclass
class Machine:
    """A machine, and what its last command said to its user."""

    world: World
    settings: Path
    monkeypatch: pytest.MonkeyPatch
    said: str = field(default="", init=False)

    @property
    def depot(self) -> Path:
        return self.world.root

    def run(self, *words: str) -> Result:
        """Run a command that must succeed."""
        done = self._invoke(*words)
        if done.exception is not None:
            raise done.exception
        return done

    def get(self, *options: str, command: str = "get") -> Any:
        """Get the small library; the compilers that it took are counted by ``compiled``."""
        wish = ("--upstream", "9.9.9", "--profile", "quick", "--arch", "80,90", "--cuda", "13.0")
        done = self.run(*command.split(), *wish, *options, "--depot", str(self.depot), "--json")
        return json.loads(done.stdout)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def key(self, name: str = "") -> str:
        """Make a key; :returns: the line that others need."""
        return self.run("keys", "new", *([name] if name else ["ci"])).stdout.strip()

    def push(self, *words: str) -> Any:
        return json.loads(self.run("depot", "push", *words, "--depot", str(self.depot), "--json").stdout)["pushed"]

    def _invoke(self, *words: str) -> Result:
        with self._here():
            done = CliRunner().invoke(app, list(words), standalone_mode=False)
        self.said = done.stderr
        return done

    @contextmanager
    def _here(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CONFIG, str(self.settings))
            patch.delenv("FLASHDEPOT_OFFLINE", raising=False)
            yield


def make_machine(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(World(folder / "depot", world.journal, world.index), folder / "config", monkeypatch)


REQUEST = make_request(c_layer=c_layer_digest())


@dataclass
class Party:
    """One user of one machine. ``warnings`` are what was said to them."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    warnings: list[str] = field(default_factory=list)

    @property
    def settings(self) -> UserSettings:
        self.monkeypatch.setenv(CONFIG, str(self.folder / "config"))
        return UserSettings.of_this_user()

    @property
    def depot(self) -> Depot:
        return Depot(self.folder / "depot", self.warnings.append)

    def key(self, name: str = "ci") -> PublicKey:
        return new_key(self.settings, name, None).public

    def trust(self, key: PublicKey, **more: object) -> None:
        self.settings.trust(TrustedKey(key, **more))  # type: ignore[arg-type]

    def remotes(self, *remotes: RemoteSettings) -> Remotes:
        _ = self.settings
        opened = Remotes(lambda: remotes, self.warnings.append)
        opened.all()
        return opened

    def store(self, name: str = "one", units: Sequence[str] = ("fwd_hdim64_bf16",)) -> Manifest:
        """A library in the depot with the units that it is made of."""
        self.folder.mkdir(exist_ok=True)
        records = [record_unit(self.depot, self.folder / "made", unit, unit.encode() * 5000) for unit in units]
        return store_library(
            self.depot, self.folder / "files", name=name, actions={record.name: record.action_key for record in records}
        )

    def push(self, remote: RemoteSettings, *manifests: Manifest, **how: bool) -> Pushed:
        return push(self.remotes(remote).all()[0], self.depot, manifests, Events(), **how)

    def fetch(self, *remotes: RemoteSettings, request: Request = REQUEST) -> Manifest | None:
        """What read-through gives; whatever it gives is whole."""
        found = self.remotes(*remotes).first(lambda remote: remote.fetch_library(self.depot, request, Events()))
        if found is not None:
            assert self.depot.load_intact(found.recipe_key) == found
        assert found is not None or self.depot.find(request).taken is None
        return found

    def fetch_unit(
        self, *remotes: RemoteSettings, record: ActionRecord | None = None, **now: str
    ) -> ActionRecord | None:
        """What read-through gives for a compiler run whose inputs are those of the record, but for those given."""
        record = record or make_record()
        digests = {**record.inputs, **now}
        wanted = {record.intent_key}
        self.remotes(*remotes).first(lambda remote: remote.fetch_units(self.depot, wanted, digests.get, lambda _: None))
        return self.depot.actions.find(record.intent_key, digests.get)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield make_world(tmp_path / "world", monkeypatch)
    fa2.published.cache_clear()


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
    monkeypatch.setattr(pushing, "_PAUSE", (0.01, 0.02))  # nobody else pushes, unless a test says so
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
