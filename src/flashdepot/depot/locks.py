"""Locks of a depot, by key, and folders for unfinished work.

Such a folder is removed when its work ends, and known as stale when its process was killed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from flashdepot.depot.layout import DepotLayout, inside, real_folders
from flashdepot.errors import FlashdepotError
from flashdepot.files.atomic import disk_errors
from flashdepot.files.locks import HeldLock, lock_file, try_lock_file
from flashdepot.files.places import held_by_another, own_name

__all__ = ["HeldLock", "lock", "try_lock"]


def try_lock(layout: DepotLayout, key: str) -> HeldLock | None:
    """Hold the lock of a key, or return ``None`` at once when somebody has it, this process included.

    :raises MissingToolError: when the depot's file system cannot be written or has no locks.
    """
    layout.prepare()
    return try_lock_file(_place(layout, key))


def lock(layout: DepotLayout, key: str, on_wait: Callable[[], None] | None = None) -> AbstractContextManager[HeldLock]:
    """Hold the lock of a key, waiting for it as long as it takes.

    :param on_wait: called once if somebody else has it.
    :raises MissingToolError: as :func:`try_lock`.
    """
    layout.prepare()
    return lock_file(_place(layout, key), on_wait)


def _place(layout: DepotLayout, key: str) -> Path:
    """The file of a lock. One that another user put there for nobody else to hold keeps nobody from working."""
    path = layout.lock(key)
    if held_by_another(path):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) or not mode & stat.S_IWGRP:
            return own_name(path)
    return path


_PREFIX = "work-"
_LOCK = ".lock"
_NAME = rf"{_PREFIX}\d+-"


@contextlib.contextmanager
def workspace(layout: DepotLayout) -> Iterator[Path]:
    """Give a fresh folder in ``tmp/``, removed with all in it at the end.

    While it is open a lock is held, by which gc knows that a build runs and since when.

    :raises MissingToolError: when the disk is full or may not be written, or has no file locks.
    """
    folder = layout.new_temporary(f"{_PREFIX}{int(time.time())}")
    held = try_lock_file(_lock_path(folder))
    if held is None:
        raise FlashdepotError(
            f"{folder} is in use although its name was chosen at random.", hint="Run the command again."
        )
    with held:
        try:
            with disk_errors(layout.root):
                folder.mkdir(mode=0o700)
            yield folder
        finally:
            _remove(folder, held)


def workspaces(layout: DepotLayout) -> Iterator[Path]:
    """Every workspace there is, in use or left behind."""
    yield from (path for path in real_folders(layout.temporary) if re.match(_NAME, path.name))


def abandoned_locks(layout: DepotLayout) -> Iterator[Path]:
    """The locks of workspaces that are gone: a kill came between a folder and its lock. One may still be held."""
    locks = (path for path in inside(layout.temporary) if re.match(_NAME, path.name) and path.suffix == _LOCK)
    yield from (path for path in locks if not path.with_suffix("").exists())


def started(folder: Path) -> float:
    """When a workspace was opened, in seconds since the epoch."""
    return float(folder.name.removeprefix(_PREFIX).partition("-")[0])


def in_use(folder: Path) -> bool:
    """Whether the process that opened a workspace is still at work."""
    held = _hold(folder)
    if held is None:
        return True
    held.release()
    return False


def remove_stale(folder: Path) -> bool:
    """Remove a workspace that a kill left behind; :returns: whether it was one and is gone."""
    held = _hold(folder)
    if held is None:
        return False
    with held:
        _remove(folder, held)
    return True


def _hold(folder: Path) -> HeldLock | None:
    if held_by_another(folder):  # theirs to remove
        return None
    return try_lock_file(_lock_path(folder))


def _remove(folder: Path, held: HeldLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.discard()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")
