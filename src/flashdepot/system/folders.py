"""Folders that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from flashdepot.errors import IntegrityError
from flashdepot.system.files import disk_errors, read_json, write_json
from flashdepot.system.own_names import writable
from flashdepot.system.use import keep

_LISTING = ".flashdepot-files.json"


def make_whole(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return ``folder``, made by ``fill`` if it is not there whole. gc leaves it alone as long as this process runs.

    Where another user has its name and it is not whole, one of this user's own is made beside it.

    ``fill`` gets the path of a folder beside it that does not exist yet. When it ends well, a listing of what it wrote
    is added and the folder takes its name in one step, so that a kill, or a second process doing the same, never
    leaves half of it. A folder that has lost files since is made again.
    """
    if not is_whole(folder):
        folder = writable(folder)
    while True:
        _make_whole(folder, fill)
        if keep(folder):  # otherwise gc removed it just now
            return folder


def _make_whole(folder: Path, fill: Callable[[Path], None]) -> None:
    if is_whole(folder):
        return
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            fill(temporary)
            write_json(temporary / _LISTING, _sizes(temporary))
            _take_name(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def is_whole(folder: Path) -> bool:
    """Whether a folder that :func:`make_whole` made still has all its files, at their sizes."""
    try:
        return bool(read_json(folder / _LISTING) == _sizes(folder))
    except (FileNotFoundError, IntegrityError):
        return False


def _take_name(temporary: Path, folder: Path) -> None:
    if folder.exists() and not is_whole(folder):
        discarded = temporary.with_name(temporary.name + ".old")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(discarded)
        shutil.rmtree(discarded, ignore_errors=True)
    try:
        temporary.rename(folder)
    except OSError:
        if not is_whole(folder):  # otherwise another process was first, with the same content
            raise


def _sizes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path.name != _LISTING
    }
