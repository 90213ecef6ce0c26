"""Folders that are there whole or not at all, by the bytes of every file, and stay while they are in use."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from flashdepot.errors import IntegrityError
from flashdepot.files.atomic import disk_errors
from flashdepot.files.digests import contents, differences
from flashdepot.files.documents import read_record, write_record
from flashdepot.model.codec import digest_of

_kept: dict[tuple[int, int], int] = {}
"""What this process uses, open, by device and inode."""


def keep(path: Path) -> bool:
    """Use a file or folder until this process ends: :func:`unused` tells others so, and so does its modification time.

    :returns: whether it is there. Somebody may have removed it while this was asked for.
    """
    with contextlib.suppress(OSError):
        os.utime(path)  # in a cache that may not be written nothing tells when it was used
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = _open(path)
    if descriptor is None:  # what cannot be opened cannot be kept, but perhaps used
        return path.exists()
    status = os.fstat(descriptor)
    key = (status.st_dev, status.st_ino)
    is_there = _is_at(path, key)
    if key in _kept or not is_there:
        os.close(descriptor)
    else:
        _kept[key] = descriptor
    return is_there


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


_LISTING = ".flashdepot-files.json"


def make_whole(folder: Path, fill: Callable[[Path], None], tree: str | None = None) -> Path:
    """Return ``folder``, made by ``fill`` if it is not there whole. gc leaves it untouched as long as this process runs.

    ``fill`` gets the path of a folder next to it that does not exist yet, which takes the name in one step: a kill, or a
    second process doing the same, never leaves half of it. Every byte is read again each time: a folder that has changed
    is made again.

    :param tree: what :func:`tree_digest` must give for it; ``None`` where nobody knows before it is made.
    :raises IntegrityError: when ``fill`` made something else than ``tree``.
    """
    while True:
        if not is_whole(folder, tree):
            _make(folder, fill, tree)
        if keep(folder):  # otherwise gc removed it just now
            return folder


def _make(folder: Path, fill: Callable[[Path], None], tree: str | None) -> None:
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            fill(temporary)
            held = contents(temporary)
            if tree is not None and digest_of(held) != tree:
                raise IntegrityError(
                    f"{folder.name} unpacks to other files than those on record: expected a digest of {tree}, "
                    f"found {digest_of(held)}.",
                    hint="Internal error in flashdepot's data: use another version, and report it.",
                )
            write_record(temporary / _LISTING, held)
            _take_name(temporary, folder, tree)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def is_whole(folder: Path, tree: str | None = None) -> bool:
    """Whether a folder that :func:`make_whole` made holds the same bytes under the same names, and nothing else.

    :param tree: the digest that it must have; without it its own listing is trusted.
    """
    return changed_files(folder, tree) == []


def changed_files(folder: Path, tree: str | None = None) -> list[str] | None:
    """The files of such a folder that are missing, too many or changed; ``None`` when nobody can tell which.

    :param tree: as of :func:`is_whole`.
    """
    try:
        held = _held(folder)
    except OSError:
        return None
    if tree is not None and digest_of(held) == tree:
        return []
    try:
        listed = read_record(folder / _LISTING)
    except (OSError, IntegrityError):
        return None
    if not isinstance(listed, dict) or (tree is not None and digest_of(listed) != tree):
        return None
    return differences(listed, held)


def tree_digest(folder: Path) -> str:
    """One SHA-256 for the names and bytes of all files of a folder, wherever it is."""
    return digest_of(_held(folder))


def _held(folder: Path) -> Mapping[str, str]:
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    held = contents(folder)
    held.pop(_LISTING, None)
    return held


def _take_name(temporary: Path, folder: Path, tree: str | None) -> None:
    if folder.exists() and not is_whole(folder, tree):
        discarded = temporary.with_name(temporary.name + ".old")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(discarded)
        shutil.rmtree(discarded, ignore_errors=True)
    try:
        temporary.rename(folder)
    except OSError:
        if not is_whole(folder, tree):  # otherwise another process was first, with the same content
            raise
