"""zig from its PyPI wheel, put into the depot: a clang and a linker for every target, wherever flashdepot runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot import facts
from flashdepot.errors import IncompatibleError
from flashdepot.events import OnFile
from flashdepot.model.recipe import Tool
from flashdepot.model.target import Platform
from flashdepot.system.archive import unpack
from flashdepot.system.files import sha256_file
from flashdepot.system.folders import make_whole
from flashdepot.system.net import fetch
from flashdepot.system.toml import read_toml

_INSIDE = "ziglang/"


_PREPROCESSOR = """\
#!/bin/sh
# clang++ for nvcc: always for one target, so that it reads the same headers on every machine.
exec "${0%/bin/clang++}/zig" c++ -target x86_64-linux-gnu.2.17 -D_ALLOW_UNSUPPORTED_LIBCPP "$@"
"""


@cache
def _data() -> dict[str, Any]:
    return read_toml(Path(facts.__file__).with_name("zig_wheels.toml"))


@dataclass(frozen=True)
class Zig:
    """A zig at hand: the folder with its program and its library, and its version."""

    root: Path
    version: str

    @property
    def program(self) -> Path:
        """The program, which is clang, a linker and an archiver by its first argument."""
        windows = self.root / "zig.exe"
        return windows if windows.is_file() else self.root / "zig"

    @property
    def preprocessor(self) -> Path:
        """A program that nvcc takes for clang++, and preprocesses with."""
        return self.root / "bin" / "clang++"

    @property
    def lib(self) -> Path:
        """The folder of its headers and of the sources of its run times."""
        return self.root / "lib"

    def environment(self, work: Path) -> dict[str, str]:
        """What it needs in its environment: what it builds for itself lies beside it, what it needs once in ``work``."""
        caches = {"ZIG_GLOBAL_CACHE_DIR": str(self.root.with_name(f"{self.root.name}-cache"))}
        return {**caches, "ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache")}

    @property
    def tool(self) -> Tool:
        """What it is to a key."""
        return Tool("zig", self.version, sha256_file(self.program))


def is_zig_provided(folder: Path) -> bool:
    """Whether :func:`provide_zig` finds it in ``folder``; its bytes are not read for that."""
    names = (f"zig-{_data()['version']}-{wheel['sha256'][:12]}" for wheel in _data()["wheel"])
    return any((folder / name).is_dir() for name in names)


def provide_zig(platform: Platform, folder: Path, on_file: OnFile) -> Zig:
    """The pinned zig inside ``folder``, fetched and unpacked on first use: a wheel of 83 MB, 340 MB unpacked.

    :param platform: the machine that it runs on.
    :param on_file: called with the name of the wheel before it is fetched.
    :raises IncompatibleError: for a platform that no wheel is pinned for.
    :raises NetworkError: when it must be fetched and cannot be.
    :raises IntegrityError: when what was fetched is not what is pinned.
    """
    version = _data()["version"]
    wheel = next((w for w in _data()["wheel"] if w["platform"] == str(platform)), None)
    if wheel is None:
        raise IncompatibleError(
            f"No zig is pinned for {platform}, and it compiles the host side of a library.",
            hint="Build on Linux or Windows, x86_64, or on Linux aarch64: --target names what it is for.",
        )

    def fill(temporary: Path) -> None:
        work = temporary.with_name(f"{temporary.name}.work")
        try:
            progress = on_file(wheel["filename"])
            place = work / wheel["filename"]
            archive = fetch("ziglang", wheel["filename"], wheel["sha256"], place, on_progress=progress)
            unpack(archive, work / "wheel", keep=lambda name: name.startswith(_INSIDE))
            shutil.move(work / "wheel" / _INSIDE, temporary)
            program = Zig(temporary, version).program
            program.chmod(program.stat().st_mode | 0o111)
            preprocessor = Zig(temporary, version).preprocessor
            preprocessor.parent.mkdir()
            preprocessor.write_text(_PREPROCESSOR)
            preprocessor.chmod(0o755)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return Zig(make_whole(folder / f"zig-{version}-{wheel['sha256'][:12]}", fill), version)
