"""Locks of a depot, by key."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from flashdepot.depot.layout import DepotLayout
from flashdepot.system.locks import HeldLock, lock_file, try_lock_file
from flashdepot.system.own_names import held_by_another, own_name

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
