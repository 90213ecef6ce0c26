"""Where a user's caches and settings lie, and names in folders to which several users add files."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

_NAME = "flashdepot"


def user_cache() -> Path:
    """The folder of flashdepot in this user's cache."""
    if found := _by_xdg("XDG_CACHE_HOME", ".cache"):
        return found
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path(_NAME, appauthor=False)


def user_config() -> Path:
    """The folder of flashdepot in this user's configuration."""
    if found := _by_xdg("XDG_CONFIG_HOME", ".config"):
        return found
    from platformdirs import user_config_path  # noqa: PLC0415

    return user_config_path(_NAME, appauthor=False)


def _by_xdg(variable: str, default: str) -> Path | None:
    """``None`` on other systems, and where the environment does not say where the user's home is."""
    named, home = Path(os.environ.get(variable, "")), Path(os.environ.get("HOME", ""))
    if sys.platform != "linux" or not (named.is_absolute() or home.is_absolute()):
        return None
    return (named if named.is_absolute() else home / default) / _NAME


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
    """The name next to a name that is this user's own; a suffix that others look for stays at its end."""
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
    """The key that a file is named by, no matter who wrote it."""
    return path.name.partition(".")[0]
