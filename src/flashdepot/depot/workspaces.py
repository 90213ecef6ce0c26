"""Folders for unfinished work: removed when it ends, and known as stale when its process was killed."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from flashdepot.depot.layout import DepotLayout, inside, real_folders
from flashdepot.errors import FlashdepotError
from flashdepot.files.atomic import disk_errors
from flashdepot.files.locks import HeldLock, try_lock_file

_PREFIX = "work-"
_LOCK = ".lock"
_NAME = rf"{_PREFIX}\d+-"


@contextlib.contextmanager
def workspace(layout: DepotLayout) -> Iterator[Path]:
    """Give a fresh folder in ``tmp/``, removed with all in it at the end.

    While it is open a lock is held, by which gc knows that a build runs and since when.
    """
    folder = layout.new_temporary(f"{_PREFIX}{int(time.time())}")
    held = try_lock_file(lock_path(folder))
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


def workspaces(layout: DepotLayout) -> list[Path]:
    """Every workspace there is, in use or left behind."""
    return [path for path in real_folders(layout.temporary) if re.match(_NAME, path.name)]


def abandoned_locks(layout: DepotLayout) -> list[Path]:
    """The locks of workspaces that are gone: a kill came between a folder and its lock. One may still be held."""
    locks = (path for path in inside(layout.temporary) if re.match(_NAME, path.name) and path.suffix == _LOCK)
    return [path for path in locks if not path.with_suffix("").exists()]


def lock_path(folder: Path) -> Path:
    """The lock of a workspace."""
    return folder.with_name(f"{folder.name}{_LOCK}")


def started(folder: Path) -> float:
    """When a workspace was opened, in seconds since the epoch."""
    return float(folder.name.removeprefix(_PREFIX).partition("-")[0])


def in_use(folder: Path) -> bool:
    """Whether the process that opened a workspace is still at work."""
    held = try_lock_file(lock_path(folder))
    if held is None:
        return True
    held.release()
    return False


def remove_stale(folder: Path) -> bool:
    """Remove a workspace that a kill left behind; :returns: whether it was one and is gone."""
    held = try_lock_file(lock_path(folder))
    if held is None:
        return False
    with held:
        _remove(folder, held)
    return True


def _remove(folder: Path, held: HeldLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.discard()
