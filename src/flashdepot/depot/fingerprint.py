"""Whether a file is still the one that was looked at, told without reading it.

It says when something was used, and keeps gc off what came into use. Nothing is believed to hold the right bytes for it:
a touch fools it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

USE_RESOLUTION = 15 * 60.0
"""Seconds within which a use is not recorded again, so that a hit rarely writes."""


class Fingerprint(NamedTuple):
    """Size in bytes, time of the last change in nanoseconds, and inode."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Look at a file or folder, not through a symbolic link; :raises OSError: when that cannot be done."""
        status = path.lstat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @property
    def age(self) -> float:
        """Seconds since the last change."""
        return time.time() - self.mtime_ns / 1e9


def is_regular(path: Path) -> bool:
    """Whether something is a file of its own, and no link; :raises OSError: when that cannot be told."""
    return stat.S_ISREG(path.lstat().st_mode)


def mark_used(path: Path) -> None:
    """Record in a file's modification time that it was used. In a depot that may not be written nothing happens."""
    with contextlib.suppress(OSError):
        if Fingerprint.of(path).age > USE_RESOLUTION:
            os.utime(path)


def move_if_unchanged(path: Path, seen: Fingerprint, destination: Path) -> bool:
    """Move a file or folder away if it is still what was seen.

    It is looked at after the move, because before it another process could still change it: then it is put back.

    :returns: whether it is at ``destination`` now.
    :raises OSError: when it cannot be moved.
    """
    try:
        path.rename(destination)
    except FileNotFoundError:
        return False
    if Fingerprint.of(destination) == seen:
        return True
    if path.exists():  # made anew meanwhile
        remove(destination)
    else:
        destination.rename(path)
    return False


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all in it; nothing happens when it is not there."""
    if path.is_dir() and not path.is_symlink():
        from shutil import rmtree  # noqa: PLC0415  (a depot hit removes nothing)

        rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
