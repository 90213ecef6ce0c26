"""Workspaces: folders for unfinished work, each with a lock that says whether somebody is still at it."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from flashdepot.depot.layout import DepotLayout
from flashdepot.errors import FlashdepotError
from flashdepot.files.disk import disk_errors
from flashdepot.files.locks import try_lock_file

WORKSPACE = re.compile(r"work-(\d+)-\w+")
"""The name of a folder for unfinished work, with the second since the epoch when it was made."""


@contextlib.contextmanager
def workspace(layout: DepotLayout) -> Iterator[Path]:
    """Give a fresh folder in ``tmp/``, removed with all in it at the end.

    While it is open a lock is held, by which gc knows that a build runs and since when.
    """
    folder = layout.new_temporary(f"work-{int(time.time())}")
    held = try_lock_file(lock_of(folder))
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
            shutil.rmtree(folder, ignore_errors=True)
            held.discard()


def lock_of(workspace: Path) -> Path:
    """The lock that is held while it is open."""
    return workspace.with_name(f"{workspace.name}.lock")


def in_use(workspace: Path) -> bool:
    """Whether the process that opened it is still at work."""
    held = try_lock_file(lock_of(workspace))
    if held is not None:
        held.release()
    return held is None


def discard(lock: Path, workspace: Path | None = None) -> bool:
    """Remove a workspace and its lock, or another lock; :returns: whether nobody held it, so that this was done."""
    held = try_lock_file(lock)
    if held is None:
        return False
    with held:
        if workspace is not None:
            shutil.rmtree(workspace, ignore_errors=True)
        held.discard()
    return True
