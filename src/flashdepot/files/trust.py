"""Files of the user's: where caches and settings are, whether another user may have put them there, which were allowed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.disk import disk_errors, write_atomic
from flashdepot.files.documents import read_json, read_toml, write_json
from flashdepot.model.codec import read
from flashdepot.model.limits import removing

_T = TypeVar("_T")
_NAME = "flashdepot"
ANOTHER_CONFIG = "XDG_CONFIG_HOME=DIR" if sys.platform == "linux" else ""
"""How a user names another folder of settings."""


def user_cache() -> Path:
    """The folder of flashdepot in this user's cache."""
    return _users("cache", ".cache")


def user_config() -> Path:
    """The folder of flashdepot in this user's configuration."""
    return _users("config", ".config")


def _users(kind: str, default: str) -> Path:
    """By platformdirs on other systems, and where the environment does not say where the user's home is.

    :raises UsageError: when nothing says it, as for ``docker run --user 1234`` without ``HOME``.
    """
    named, home = Path(os.environ.get(f"XDG_{kind.upper()}_HOME", "")), Path(os.environ.get("HOME", ""))
    if sys.platform == "linux" and (named.is_absolute() or home.is_absolute()):
        return (named if named.is_absolute() else home / default) / _NAME
    import platformdirs  # noqa: PLC0415

    try:
        found = Path(getattr(platformdirs, f"user_{kind}_path")(_NAME, appauthor=False))
    except RuntimeError:
        found = Path("~")
    if not found.is_absolute():
        raise UsageError(
            f"User {os.getuid()} has no home: HOME is not set, and the system knows none. The depot and settings are there.",
            hint="export HOME=/tmp/home   # or another folder that stays",
        )
    return found


def planted(path: Path) -> str:
    """Why another user may have put a file or folder there; empty when only this user or root can have.

    The rule is that of git's ``safe.directory``: it belongs to one of :func:`trusted_users`, and not everybody may write
    to it, or exchange it in its folder (``/tmp`` is sticky). Of a symbolic link the link counts. Always empty on Windows.

    :raises OSError: when it is not there.
    """
    if os.name != "posix":
        return ""
    found, folder = path.lstat(), path.parent.stat()
    if found.st_uid not in trusted_users():
        return f"it belongs to user {user_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode):
        return "everybody may write to it"
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return f"everybody may write to its folder, {path.parent}"
    return ""


def trusted_users() -> set[int]:
    """Who may own what this user takes: the user, root, and for root by way of sudo the user who called it."""
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {user, 0, int(caller)} if user == 0 and caller.isdecimal() else {user, 0}


def user_name(user: int) -> str:
    """The name of a user, the number where it has none."""
    import pwd  # noqa: PLC0415  (not on Windows)

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def read_settings(path: Path, kind: type[_T]) -> _T:
    """What a file of the user's settings holds, JSON or TOML by its name; an empty one where there is none.

    :raises UsageError: when it cannot be used, or another user may have written it.
    """
    try:
        if by_others := planted(path):
            raise _unusable(path, f"is not trusted: {by_others}")
        return read(read_json(path) if path.suffix == ".json" else read_toml(path), kind)
    except FileNotFoundError:
        return kind()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except UsageError:
        raise
    except (FlashdepotError, ValueError) as error:
        raise _unusable(path, f"cannot be used: {str(error).rstrip('.')}") from error


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} {why}.", hint=f"Correct it, or remove it: {removing(path)}")


def write_settings(path: Path, document: dict[str, Any]) -> None:
    """Write a file of the user's settings, JSON or TOML by its name; :raises MissingToolError: when that cannot be done."""
    with disk_errors(path.parent, ANOTHER_CONFIG):
        if path.suffix == ".json":
            write_json(path, document)
            return
        import tomli_w  # noqa: PLC0415  (only what changes something writes)

        write_atomic(path, tomli_w.dumps(document).encode())


def users_consents() -> Consents:
    """Those of this user."""
    return Consents(user_config() / "trusted.json")


class _Trusted(msgspec.Struct):
    trusted: dict[str, str] = {}


class Consents(msgspec.Struct, frozen=True):
    """The SHA-256 of each file that was allowed, by its path, kept in ``file``."""

    file: Path

    def given(self, path: Path, digest: str) -> bool:
        """Whether a file was allowed with these bytes."""
        return self.all().get(_key(path)) == digest

    def give(self, path: Path, digest: str) -> None:
        """Allow a file with these bytes only; :raises MissingToolError: when that cannot be written down."""
        write_settings(self.file, {"trusted": {**self.all(), _key(path): digest}})

    def withdraw(self, path: Path) -> bool:
        """Forget a file; ``False`` when it was not allowed."""
        kept = dict(self.all())
        found = kept.pop(_key(path), None) is not None
        if found:
            write_settings(self.file, {"trusted": kept})
        return found

    def all(self) -> Mapping[str, str]:
        """Every path, with the digest that was allowed."""
        return read_settings(self.file, _Trusted).trusted


def _key(path: Path) -> str:
    return str(path.resolve())
