"""Confinement: a program that works on what is not trusted sees the files that it needs, and no network."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import Enum
from functools import cache
from pathlib import Path

import msgspec

from flashdepot.errors import FlashdepotError
from flashdepot.process.run import run

UNCONFINED = "FLASHDEPOT_UNCONFINED"
"""The variable that lifts it, for what one trusts and what needs more."""

_PROGRAM = (sys.executable, "-I", "-S", str(Path(__file__).with_name("confine.py")))

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/sys/devices/system/cpu"),
)
"""What programs of every system are made of. /proc is not in it: it shows other processes, but to bubblewrap's."""


class Visible(msgspec.Struct, frozen=True):
    """What a confined program sees, next to the system's own programs and libraries: files and folders."""

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]


class Confinement(Enum):
    """How this system confines. The value is the name for people."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "Landlock"
    NONE = ""

    def __str__(self) -> str:
        if self is Confinement.NONE:
            return "not at all: this system has neither bubblewrap nor Landlock (Linux 5.13) that works"
        return f"by {self.value}: none of your files, no network"


def is_lifted() -> bool:
    """Whether the user wants nothing to be confined."""
    return os.environ.get(UNCONFINED, "") not in {"", "0"}


def confinement_here() -> Confinement:
    """The best that this system allows and the user wants."""
    return Confinement.NONE if is_lifted() else _best()


@cache
def _best() -> Confinement:
    return next((by for by in (Confinement.BUBBLEWRAP, Confinement.LANDLOCK) if works(by)), Confinement.NONE)


def works(by: Confinement) -> bool:
    """Whether a program can be confined so here."""
    if sys.platform != "linux":
        return False
    try:
        return run(confined(("true",), Path("/"), Visible((), ()), by), timeout=20).status == 0
    except FlashdepotError:
        return False


def confined(command: Sequence[str], cwd: Path, view: Visible, by: Confinement) -> list[str]:
    """A command that runs another one confined, in the folder ``cwd``; the same command where nothing confines."""
    if by is Confinement.NONE:
        return list(command)
    readable = [*_SYSTEM, *map(str, view.readable)]
    # bubblewrap makes devices of its own.
    writable = [*(_DEVICES if by is Confinement.LANDLOCK else ()), *map(str, view.writable)]
    seen = {"by": by.name.lower(), "cwd": str(cwd), "readable": readable, "writable": writable}
    return [*_PROGRAM, json.dumps(seen), *command]
