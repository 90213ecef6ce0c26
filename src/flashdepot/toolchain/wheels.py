"""nvcc from its PyPI wheels, put into the depot and never into the user's environment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.errors import IncompatibleError
from flashdepot.model.canonical import digest_of
from flashdepot.model.target import Platform, Version
from flashdepot.system.archive import unpack
from flashdepot.system.folders import make_whole
from flashdepot.system.net import fetch
from flashdepot.system.toml import read_toml

_INSIDE = "nvidia/cu13/"


@cache
def _data() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("nvcc_wheels.toml"))


def provided_version() -> Version:
    """The version of the nvcc that :func:`provide` gives."""
    return Version.parse(_data()["cuda"])


def provides(platform: Platform) -> bool:
    """Whether PyPI has nvcc for a platform."""
    return bool(_wheels(platform))


def provide(platform: Platform, folder: Path, on_file: Callable[[str], None]) -> Path:
    """The root of the pinned toolkit inside ``folder``, fetched and unpacked on first use (about 100 MB of wheels).

    :param on_file: called with the name of each wheel before it is fetched.
    :raises IncompatibleError: for a platform that PyPI has no nvcc for.
    :raises NetworkError: when it must be fetched and cannot be.
    :raises IntegrityError: when what was fetched is not what is pinned.
    """
    wheels = _wheels(platform)
    if not wheels:
        raise IncompatibleError(
            f"PyPI has no nvcc for {platform}.", hint="Install a CUDA toolkit and name its folder: --cuda DIR"
        )
    pinned = digest_of(sorted(w["sha256"] for w in wheels))
    root = folder / f"cuda-{provided_version()}-{pinned[:12]}"

    def fill(temporary: Path) -> None:
        # Beside the folder that is filled, and as much its own: another process may be doing the same.
        work = temporary.with_name(f"{temporary.name}.work")
        try:
            for wheel in wheels:
                on_file(wheel["filename"])
                archive = fetch(wheel["project"], wheel["filename"], wheel["sha256"], work / wheel["filename"])
                unpack(archive, work / wheel["project"], keep=lambda name: name.startswith(_INSIDE))
                shutil.copytree(
                    work / wheel["project"] / _INSIDE, temporary, dirs_exist_ok=True, copy_function=shutil.move
                )
                archive.unlink()
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return make_whole(root, fill)


def _wheels(platform: Platform) -> list[dict[str, str]]:
    return [w for w in _data()["wheel"] if w["platform"] == str(platform)]
