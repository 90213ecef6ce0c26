"""Files and folders in use: nobody removes one that another process works with."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_kept: dict[tuple[int, int], int] = {}
"""What this process uses, open, by device and inode."""


def keep(path: Path) -> bool:
    """Use a file or folder until this process ends: :func:`unused` tells others so, and so does its modification time.

    :returns: whether it is there. Somebody may have removed it while this was asked for.
    """
    with contextlib.suppress(OSError):
        os.utime(path)  # in a cache that may not be written nothing tells when it was used
    try:
        descriptor = _open(path)
    except OSError:
        return path.exists()  # one that cannot be opened cannot be kept, but perhaps used
    if descriptor is None:
        return path.exists()
    status = os.fstat(descriptor)
    key = (status.st_dev, status.st_ino)
    if key in _kept or not _is_at(path, key):
        os.close(descriptor)
        return key in _kept and _is_at(path, key)
    _kept[key] = descriptor
    return True


@contextlib.contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Say whether no process uses a file or folder. If so nobody begins to until the block ends.

    On a file system without locks everything counts as unused; on Windows too, where one that is used cannot be
    renamed.
    """
    if sys.platform == "win32":
        yield True
        return
    import fcntl  # noqa: PLC0415  (not on Windows)

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            yield True
        else:
            yield True
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    """Something open that keeps a file or folder; ``None`` where nothing can."""
    if sys.platform == "win32":
        # Windows does not rename a folder in which a file is open.
        file = path if path.is_file() else next((inner for inner in path.iterdir() if inner.is_file()), None)
        return None if file is None else os.open(file, os.O_RDONLY)
    import fcntl  # noqa: PLC0415  (not on Windows)

    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is_at(path: Path, key: tuple[int, int]) -> bool:
    if sys.platform == "win32":
        return True
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == key
