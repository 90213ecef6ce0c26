"""A zig of a test's own in a depot, in the place of the one from PyPI."""

from __future__ import annotations

from pathlib import Path

from flashdepot.files.folders import make_whole
from flashdepot.host.probe import this_platform
from flashdepot.toolchain.zig import compiling_version, zig_folder


def put_zig(toolchains: Path, program: str) -> None:
    """Put a zig that is a script into the ``toolchains`` of a depot, for this machine's platform."""

    def fill(folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "lib").mkdir()
        for name in ("zig", "bin/clang++"):
            (folder / name).write_text(program)
            (folder / name).chmod(0o755)

    make_whole(zig_folder(this_platform(), toolchains, compiling_version()), fill)
