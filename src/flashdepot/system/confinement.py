"""Programs that work on what nobody vouches for: they see the files that they need, and no network."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from flashdepot.errors import FlashdepotError
from flashdepot.system.process import run

_LANDLOCK = (sys.executable, "-I", "-S", str(Path(__file__).with_name("landlock.py")))

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/sys/devices/system/cpu"),
)
"""What programs of every system are made of. /proc is not in it: it shows the environment, and other processes."""


class Means(msgspec.Struct, frozen=True):
    """How this system confines: ``landlock``, ``bubblewrap`` or nothing; and whether that closes the network, or TCP."""

    name: str
    network: bool = False
    tcp: bool = False

    @property
    def counts(self) -> bool:
        """Whether the costs that the system tells of a confined program are its own: bubblewrap does not wait for it."""
        return self.name != "bubblewrap"

    def __str__(self) -> str:
        if not self.name:
            return "not at all: this system has neither Landlock (Linux 5.13) nor bubblewrap that works"
        closed = "no network" if self.network else "no TCP" if self.tcp else "but the network"
        return f"by {self.name}: no file of yours, {closed}"


class View(msgspec.Struct, frozen=True):
    """What a confined program sees besides the system's own programs and libraries: files and folders."""

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]


@cache
def means() -> Means:
    """The best that this system allows, tried once."""
    if sys.platform != "linux":
        return Means("")
    here = landlock()
    if here is not None and here.network:
        return here
    return bubblewrap() or here or Means("")


def landlock() -> Means | None:
    """Linux's own way; ``None`` where the kernel has none."""
    try:
        found = json.loads(run([*_LANDLOCK, "{}"], timeout=20).stdout)
    except (FlashdepotError, ValueError):
        return None
    return Means("landlock", bool(found["network"]), bool(found["tcp"])) if found["files"] else None


def bubblewrap() -> Means | None:
    """A program that many systems have; ``None`` where it is not installed or not allowed to work."""
    if shutil.which("bwrap") is None or run(_bubblewrap(("true",), Path("/"), View((), ())), timeout=20).status != 0:
        return None
    return Means("bubblewrap", network=True, tcp=True)


def confined(command: Sequence[str], cwd: Path, view: View, by: Means) -> list[str]:
    """A command that runs another one confined, in the folder ``cwd``; the same command where nothing confines."""
    if by.name == "bubblewrap":
        return _bubblewrap(command, cwd, view)
    if by.name == "landlock":
        readable = [*_SYSTEM, *map(str, view.readable)]
        writable = [*_DEVICES, *map(str, view.writable)]
        return [*_LANDLOCK, json.dumps({"readable": readable, "writable": writable}), *command]
    return list(command)


def _bubblewrap(command: Sequence[str], cwd: Path, view: View) -> list[str]:
    binds = [("--ro-bind-try", path) for path in (*_SYSTEM, *map(str, view.readable))]
    binds += [("--bind-try", path) for path in map(str, view.writable)]
    # What lies inside of something else comes after it.
    mounts = [word for option, path in sorted(binds, key=lambda bind: bind[1]) for word in (option, path, path)]
    alone = ("--unshare-all", "--die-with-parent", "--new-session")
    return ["bwrap", *alone, "--tmpfs", "/tmp", "--dev", "/dev", *mounts, "--chdir", str(cwd), "--", *command]  # noqa: S108  (an empty one)
