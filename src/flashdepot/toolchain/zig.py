"""zig from its PyPI wheels, put into the depot: a clang and a linker for every target, wherever flashdepot runs.

One version compiles and links. nvcc's preprocessor is the same one, or an older one where that nvcc is too old for the
C++ library of the newer.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.errors import CompileError, IncompatibleError
from flashdepot.events import OnFile
from flashdepot.facts import table
from flashdepot.files.disk import sha256_file
from flashdepot.files.folders import make_whole
from flashdepot.model.recipe import Tool
from flashdepot.model.target import Platform, Version
from flashdepot.process.confinement import Visible, confined, confinement_here
from flashdepot.process.run import Finished, first_error, run
from flashdepot.toolchain.wheels import Pinned, pinned_wheels

_INSIDE = "ziglang/"

_OTHER_SYSTEMS = re.compile(
    r"ziglang/(doc|lib/(docs|fuzzer|init|tsan|build-web|libc/(darwin|musl|wasi))"
    r"|lib/libc/include/(?!(any-windows-any|any-linux-any|generic-glibc|x86-linux|x86_64-linux-gnu/|aarch64-linux)))"
)
"""What none of our targets reads: half of the files, and each is read again whenever zig is used."""

_PREPROCESSOR = """\
#!/bin/sh
# clang++ for nvcc: always for one target, so that it reads the same headers on every machine.
exec "${0%/bin/clang++}/zig" c++ -target x86_64-linux-gnu.2.17 -D_ALLOW_UNSUPPORTED_LIBCPP "$@"
"""


def _data() -> dict[str, Any]:
    return table("zig_wheels")


def compiling_version() -> str:
    """The version that compiles the host side and links."""
    version: str = _data()["zig"][0]["version"]
    return version


def preprocessing_version(cuda: Version) -> str:
    """The version that preprocesses for the nvcc of a CUDA release: the first pinned one that its front end can read."""
    pins = _data()["zig"]
    pin = next((pin for pin in pins if cuda >= Version.parse(pin["preprocesses_from"])), pins[-1])
    return str(pin["version"])


_FIRST_LINK = 10.0
"""Seconds on two cores."""


class Zig(msgspec.Struct, frozen=True):
    """An available zig: the folder with its program and its library, and its version."""

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
        """What it needs in its environment, so that whatever it keeps is in ``work``."""
        return dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(work / "zig-cache"))

    def linker(self, target: str, folder: Path) -> Linker:
        """Get ready to link for a target, by zig's name of that, in a folder.

        The first link for a target builds the start files and the stand-ins for the C library's shared ones (10 seconds
        for Linux). They are kept next to zig, and read again and compared whenever they are used, as it is. Each folder has a copy: zig writes into it, and what it links may try to.
        """
        built = make_whole(_linked(self.root, target), lambda folder: self._first_link(target, folder))
        shutil.copytree(built, folder / "zig-cache", symlinks=True, copy_function=shutil.copyfile)
        return Linker(self, folder)

    def _first_link(self, target: str, folder: Path) -> None:
        folder.mkdir()
        with tempfile.TemporaryDirectory(prefix="flashdepot-zig-") as name:
            work = Path(name)
            (work / "nothing.c").write_text("int flashdepot_nothing(void) { return 0; }\n")
            environment = {**os.environ, **self.environment(work), "ZIG_GLOBAL_CACHE_DIR": str(folder)}
            # In two steps, as objects are linked: what it compiles itself it would keep in the same place.
            words, quiet = [str(self.program), "cc", "-target", target], {**os.environ, **self.environment(work)}
            made = run([*words, "-c", "nothing.c", "-o", "nothing.o"], cwd=work, env=quiet, timeout=600)
            if made.status == 0:
                link = [*words, "-shared", "-s", "nothing.o", "-o", "nothing"]
                made = run(link, cwd=work, env=environment, timeout=1200)
        if made.status != 0:
            raise CompileError(f"zig cannot link for {target}: {first_error(made.output)}")

    @property
    def tool(self) -> Tool:
        """What it is to a key."""
        return Tool("zig", self.version, sha256_file(self.program))


class Linker(msgspec.Struct, frozen=True):
    """zig as it links in one folder, which is all that it sees, apart from itself: objects can name any file."""

    zig: Zig
    folder: Path

    def run(self, *words: str) -> Finished:
        """Run it to its end."""
        command = [str(self.zig.program), *words]
        environment = {**self.zig.environment(self.folder), "PATH": os.defpath, "HOME": str(self.folder), "LC_ALL": "C"}
        environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.folder))
        environment |= {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
        seen = Visible((self.zig.root,), (self.folder,))
        return run(
            confined(command, self.folder, seen, confinement_here()), cwd=self.folder, env=environment, timeout=1200
        )


def _linked(root: Path, target: str) -> Path:
    return root.with_name(f"{root.name}-for-{target}")


def first_link_seconds(platform: Platform, folder: Path, target: str) -> float:
    """What the first link for a Linux takes, by zig's name of it; 0 where that was done (:meth:`Zig.linker`)."""
    zig = folder / pinned_zig(platform, compiling_version()).folder
    return 0.0 if "windows" in target or _linked(zig, target).is_dir() else _FIRST_LINK


def provide_zig(platform: Platform, folder: Path, on_file: OnFile, version: str) -> Zig:
    """A zig inside ``folder``; as :meth:`Pinned.provide` of :func:`pinned_zig`."""
    return Zig(pinned_zig(platform, version).provide(folder, on_file), version)


def pinned_zig(platform: Platform, version: str) -> Pinned:
    """A pinned version of zig for the machine that it runs on: a wheel of 83 MB, 290 MB unpacked."""

    def wanted(name: str) -> bool:
        return name.startswith(_INSIDE) and _OTHER_SYSTEMS.match(name) is None

    def finish(root: Path) -> None:
        zig = Zig(root, version)
        zig.program.chmod(zig.program.stat().st_mode | 0o111)
        zig.preprocessor.parent.mkdir()
        zig.preprocessor.write_text(_PREPROCESSOR)
        zig.preprocessor.chmod(0o755)

    pin = next(pin for pin in _data()["zig"] if pin["version"] == version)
    for wheel in pinned_wheels(pin["wheels"]):
        if wheel.runs_on(platform):
            return Pinned(f"zig-{version}-{wheel.sha256[:12]}", (wheel,), wanted, _INSIDE, finish=finish)
    raise IncompatibleError(
        f"No zig {version} is pinned for {platform}, and it compiles the host side of a library.",
        hint="Build on Linux, x86_64 or aarch64: --target names what it is for.",
    )
