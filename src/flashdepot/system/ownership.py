"""Whether a file that was found on the way, and that nobody named, may be another user's doing."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def planted(path: Path) -> str:
    """Why another user may have put a file or folder there; empty when only this user or root can have.

    The rule is that of git's ``safe.directory``: it belongs to this user, to root, or, for root by way of sudo, to the
    user who called sudo. And not everybody may write to it, or exchange it in its folder (``/tmp`` is sticky, so that
    there only the owner may). Of a symbolic link it is the link that counts. Windows has no such owners: always empty.

    :raises OSError: when it is not there.
    """
    if os.name != "posix":
        return ""
    found, folder = path.lstat(), path.parent.stat()
    if found.st_uid not in _trusted():
        return f"it belongs to {_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode):
        return "everybody may write to it"
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return f"everybody may write to its folder, {path.parent}"
    return ""


def _trusted() -> set[int]:
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {user, 0, int(caller)} if user == 0 and caller.isdecimal() else {user, 0}


def _name(user: int) -> str:
    import pwd  # noqa: PLC0415  (not on Windows)

    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
