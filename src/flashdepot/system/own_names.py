"""Names in a folder to which several users add files: each of them replaces and removes only their own.

Where another user has a name already, what this user would write there gets a name with their number in it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_SUFFIXES = frozenset({".json", ".log"})


def held_by_another(path: Path) -> bool:
    """Whether a name is another user's to replace or remove: the folder is sticky, and neither it nor the file is ours."""
    if os.name != "posix" or os.geteuid() == 0:
        return False
    try:
        status, folder = path.lstat(), path.parent.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(folder.st_mode & stat.S_ISVTX) and os.geteuid() not in {status.st_uid, folder.st_uid}


def own_name(path: Path) -> Path:
    """The name beside a name that is this user's own; a suffix that others look for stays at its end."""
    suffix = path.suffix if path.suffix in _SUFFIXES else ""
    return path.with_name(f"{path.name.removesuffix(suffix)}.{os.geteuid() if os.name == 'posix' else 0}{suffix}")


def writable(path: Path) -> Path:
    """Where this user may write what belongs at a path: there, or by :func:`own_name`."""
    return own_name(path) if held_by_another(path) else path


def present(path: Path) -> Path:
    """Where this user finds what belongs at a path: what they wrote by :func:`own_name`, else what is there."""
    own = own_name(path)
    return own if os.path.lexists(own) else path


def key_of(path: Path) -> str:
    """The key that a file is named by, whoever wrote it."""
    return path.name.partition(".")[0]
