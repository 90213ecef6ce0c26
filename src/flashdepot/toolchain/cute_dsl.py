"""CuTe DSL from its PyPI wheels, put into the depot: never into the user's environment, never into what is built."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.errors import IncompatibleError
from flashdepot.events import OnFile
from flashdepot.facts import read_table
from flashdepot.model.codec import digest_of
from flashdepot.model.target import Platform, Version
from flashdepot.toolchain.wheels import PinnedWheel, pinned, provide_wheels

SIZE = 125 * 10**6
UNPACKED = 334 * 10**6
"""Bytes of the wheels and of their folder in a depot, for Python 3.12 on x86-64, measured on 2026-11-21."""

_LEFT_OUT = (".dist-info/", "/tests/", "/include/", ".a", ".pyi", ".pxd")


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_name("cute_dsl_wheels.toml"))


def provided_version() -> Version:
    """The version of CuTe DSL that :func:`provide` gives."""
    return Version.parse(_data()["cute_dsl"])


def identity() -> str:
    """A digest of the projects and versions that :func:`provide` gives, the same on every machine.

    Wheels differ with the Python that they are for, and what is compiled with them does not: the objects of 3.11 and
    3.12 had the same bytes.
    """
    return digest_of(sorted({f"{wheel.project}=={wheel.version}" for wheel in _all_wheels()}))


def running_python() -> str:
    """The tag of the Python that runs this, ``cp312``; it runs the compile workers too."""
    name = {"cpython": "cp"}.get(sys.implementation.name, sys.implementation.name)
    return f"{name}{sys.version_info.major}{sys.version_info.minor}"


def provide(platform: Platform, python: str, folder: Path, on_file: OnFile) -> Path:
    """The folder with CuTe DSL and what it imports, inside ``folder``; fetched and unpacked on first use.

    That is 125 MB of wheels. NVIDIA's licence lets nobody pass its library on, so it stays in the depot.

    :param python: the tag of the Python that should import it, ``cp312``.
    :param on_file: called with the name of each wheel before it is fetched.
    """
    wheels = _wheels(platform, python)
    return provide_wheels(_place(wheels, python, folder), wheels, on_file, keep=_is_needed)


def is_dsl_provided(platform: Platform, python: str, folder: Path) -> bool:
    """Whether :func:`provide` finds it in ``folder``; its bytes are not read for that."""
    return _place(_wheels(platform, python), python, folder).is_dir()


def _place(wheels: list[PinnedWheel], python: str, folder: Path) -> Path:
    return folder / f"cute-dsl-{provided_version()}-{python}-{pinned(wheels)}"


def _is_needed(name: str) -> bool:
    return not any(part in name if part.endswith("/") else name.endswith(part) for part in _LEFT_OUT)


def _all_wheels() -> list[PinnedWheel]:
    return msgspec.convert(_data()["wheel"], list[PinnedWheel])


def _wheels(platform: Platform, python: str) -> list[PinnedWheel]:
    """The wheel of each project; every project has one for each platform and Python that is served."""
    wheels = _all_wheels()
    platforms = sorted({wheel.platform for wheel in wheels} - {"any"})
    pythons = sorted({wheel.python for wheel in wheels} - {"any"})
    if str(platform) not in platforms:
        raise IncompatibleError(
            f"FlashAttention-4 is compiled on {' or '.join(platforms)}, and this is {platform}.",
            hint="Build it on such a machine, or build only FlashAttention-2: --families fa2",
        )
    if python not in pythons:
        *others, last = [f"{tag[2]}.{tag[3:]}" for tag in pythons]
        raise IncompatibleError(
            f"CuTe DSL {provided_version()}, which compiles FlashAttention-4, is for CPython {', '.join(others)} and "
            f"{last}; flashdepot runs in {python}.",
            hint="Run flashdepot with one of those, or build only FlashAttention-2: --families fa2",
        )
    return [w for w in wheels if w.platform in ("any", str(platform)) and w.python in ("any", python)]
