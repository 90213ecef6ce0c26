"""Who may write into a depot: what is in it is linked, executed and loaded by anyone who uses it.

Checked whenever a depot is opened: no folder is a link, all belong to the user or to somebody whom the user trusts, and
nobody else may write into them.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from flashdepot.depot.layout import DepotLayout
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.atomic import disk_errors, make_folder

TRUSTED_USERS = "FLASHDEPOT_TRUSTED_USERS"
"""Environment variable: names or numbers of users, with commas, whose depots are used."""


def require_safe(layout: DepotLayout, environment: Mapping[str, str] = os.environ) -> None:
    """Check a depot's folders; one that is not there yet is as it should be."""
    with disk_errors(layout.root):
        try:
            top = layout.root.stat()
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise _is_a_file(layout.root) from None
        if not stat.S_ISDIR(top.st_mode):
            raise _is_a_file(layout.root)
        _require(layout.root, top, layout.root, environment)
        for folder in layout.folders:
            try:
                status = folder.lstat()
            except FileNotFoundError:
                continue
            _require(folder, status, layout.root, environment)


def init(layout: DepotLayout) -> None:
    """Make a depot, or take from all but its owner the right to write into one; :raises IntegrityError: for a link in it."""
    with disk_errors(layout.root):
        make_folder(layout.root)
        layout.root.chmod(0o755)
        for folder in layout.folders:
            if folder.is_symlink():
                raise _not_a_folder(folder, folder.lstat())
            make_folder(folder)
            for path in (folder, *(folder.glob("[0-9a-f][0-9a-f]") if folder in layout.sharded else ())):
                path.chmod(0o755)
        layout.prepare()


def _require(folder: Path, status: os.stat_result, root: Path, environment: Mapping[str, str]) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise _not_a_folder(folder, status)
    if os.name != "posix":  # Windows: the user's own folder of caches is nobody else's by its access list
        return
    if status.st_uid not in {os.geteuid(), 0} and status.st_uid not in _trusted(environment):
        from flashdepot.files.trust import user_name  # noqa: PLC0415  (most depots are the user's)

        name = user_name(status.st_uid)
        raise IntegrityError(
            f"{folder} belongs to {name}, who can put anything into the libraries that you take from it.",
            hint=f"Use your own depot: --depot DIR. If you trust {name} with all that you run: "
            f"export {TRUSTED_USERS}={name}",
        )
    if status.st_mode & stat.S_IWOTH:
        who, mode = "every user of this machine", "o-w"
    elif status.st_mode & stat.S_IWGRP and not _is_of_one_user(status):
        who, mode = f"its group ({status.st_gid})", "g-w"
    else:
        return
    raise IntegrityError(
        f"{folder} may be written by {who}: anybody could have made the libraries in it.",
        hint=f"chmod -R {mode} {shlex.quote(str(root))}; to share libraries: flashdepot remote add NAME file:///FOLDER",
    )


def _trusted(environment: Mapping[str, str]) -> set[int]:
    """The users that :data:`TRUSTED_USERS` names, and those that are always trusted."""
    import pwd  # noqa: PLC0415  (not on Windows)

    from flashdepot.files.trust import trusted_users  # noqa: PLC0415  (as above)

    names = [name.strip() for name in environment.get(TRUSTED_USERS, "").split(",") if name.strip()]
    try:
        named = {int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid for name in names}
    except KeyError as error:
        raise UsageError(f"{TRUSTED_USERS} names a user that does not exist: {error}.") from None
    return named | trusted_users()


def _is_of_one_user(status: os.stat_result) -> bool:
    """Whether the group of a folder is its owner's own, as distributions give every user one (Debian, Fedora)."""
    import grp  # noqa: PLC0415
    import pwd  # noqa: PLC0415

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name and set(group.gr_mem) <= {owner.pw_name}


def _not_a_folder(folder: Path, status: os.stat_result) -> IntegrityError:
    what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no folder"
    return IntegrityError(
        f"{folder} is {what}: a depot holds only folders there, and no link in it is followed.",
        hint="Remove it: what was there is made again. To put the depot elsewhere: --depot DIR, or FLASHDEPOT_HOME.",
    )


def _is_a_file(root: Path) -> UsageError:
    return UsageError(f"{root} is a file, and a depot is a folder.", hint="Name a folder: --depot DIR")
