"""Folders that are there whole or not at all, by the bytes of every file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from flashdepot.errors import IntegrityError
from flashdepot.files.atomic import disk_errors
from flashdepot.files.digests import contents, differences
from flashdepot.files.documents import read_record, write_record
from flashdepot.model.codec import digest_of


def touch(path: Path) -> None:
    """Say by a file's or folder's modification time that it is used now; in a cache that may not be written nothing does."""
    with contextlib.suppress(OSError):
        os.utime(path)


_LISTING = ".flashdepot-files.json"


def make_whole(folder: Path, fill: Callable[[Path], None], tree: str | None = None) -> Path:
    """Return ``folder``, made by ``fill`` if it is not there whole. gc leaves what was used since a running build began.

    ``fill`` gets the path of a folder next to it that does not exist yet, which takes the name in one step. Every byte is
    read again each time: a folder that has changed is made again.

    :param tree: what :func:`tree_digest` must give for it, else :class:`IntegrityError`; ``None`` where nobody knows yet.
    """
    touch(folder)  # before it is read: gc moves nothing away that was marked after its plan
    if not is_whole(folder, tree):
        _make(folder, fill, tree)
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
    """Whether a folder of :func:`make_whole` holds the same bytes under the same names, and nothing else."""
    return changed_files(folder, tree) == []


def changed_files(folder: Path, tree: str | None = None) -> list[str] | None:
    """The files of such a folder that are missing, too many or changed; ``None`` when nobody can tell which."""
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
