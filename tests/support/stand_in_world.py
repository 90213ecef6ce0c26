"""flashdepot with a small pinned source and stand-ins for nvcc and zig, so that a library is built in a second or two."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from flashdepot import host
from flashdepot.cli.app import app
from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.host.probe import this_platform
from flashdepot.kernels.fa2 import sources
from flashdepot.model.codec import digest_of
from flashdepot.net import fetch as net
from flashdepot.net.fetch import offline
from flashdepot.process.confinement import UNCONFINED
from flashdepot.toolchain import wheels, zig
from support.upstream_tree import cutlass_files, make_sdist, sdists_toml, tree_files

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
    monkeypatch.setenv(UNCONFINED, "1")  # the compilers keep a journal
    index = folder / "index"
    index.mkdir(parents=True)
    sdist = make_sdist(VERSION, tree_files(VERSION) | cutlass_files("csrc/cutlass/"))
    (index / _SDIST).write_bytes(sdist)
    sdists_toml(folder / "sdists.toml", VERSION, sdist)
    monkeypatch.setattr(sources, "DATA", folder / "sdists.toml")
    sources.published.cache_clear()
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
    # The machine's own toolkits would be taken before the stand-in.
    probe = host.probe
    monkeypatch.setattr(host, "probe", lambda **options: replace(probe(**options), toolkits=()))
    monkeypatch.setenv("STAND_IN_JOURNAL", str(folder / "journal"))
    return World(folder / "depot", folder / "journal", index)


def _pack_toolkit(index: Path) -> dict[str, Any]:
    files = {**_FILES, "bin/nvcc": f"#!{sys.executable} -S\n{_TOOL.read_text()}".encode()}
    row = _pack(index / "nvcc.whl", "nvidia/cu13", files)
    tree = digest_of({name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    return {"cuda": "13.0.88", "wheel": [row], "tree": {str(this_platform()): tree}}


def _pack_zig(index: Path) -> dict[str, Any]:
    files = {"zig": f"#!{sys.executable} -S\n{_TOOL.read_text()}".encode(), "lib/compiler_rt.zig": b"const x = 1;\n"}
    wheel = _pack(index / "zig.whl", "ziglang", files)
    return {"zig": [{"version": "0.14.1", "preprocesses_from": "12.0", "wheel": [wheel]}]}


def _pack(wheel: Path, inside: str, files: dict[str, bytes]) -> dict[str, str]:
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(f"{inside}/{name}")
            info.external_attr = (0o100755 if name.startswith(("bin/", "nvvm/bin", "zig")) else 0o100644) << 16
            archive.writestr(info, data)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {"project": wheel.stem, "filename": wheel.name, "sha256": sha256, "platform": str(this_platform())}
