"""Who may write into a depot: what is in it is linked, executed and loaded by anyone who uses it.

Checked whenever a depot is opened, with one look at each of its folders: no folder is a link, all belong to the user or
to somebody whom the user trusts, and nobody else may write into them but the group that a depot was shared with on purpose.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from flashdepot.depot.layout import DepotLayout
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.atomic import disk_errors, make_folder, read_json, write_json

TRUSTED_USERS = "FLASHDEPOT_TRUSTED_USERS"
"""Environment variable: names or numbers of users, with commas, whose depots are used."""

_PRIVATE = 0o755
_FIXED = 0o2755
"""Folders that only hold folders, which ``init`` made: nobody adds a link among them."""

_SHARED = 0o3775
"""Members of the group add files (and setgid gives these the group); sticky: only who made a file removes it."""


def require_safe(layout: DepotLayout, environment: Mapping[str, str] = os.environ) -> bool:
    """Check a depot's folders; one that is not there yet is as it should be.

    :returns: whether it is shared.
    :raises IntegrityError: when a folder is a link, another user's, or may be written by others.
    :raises UsageError: when the depot is a file.
    :raises MissingToolError: when the depot may not be read.
    """
    with disk_errors(layout.root):
        try:
            top = layout.root.stat()
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise _is_a_file(layout.root) from None
        if not stat.S_ISDIR(top.st_mode):
            raise _is_a_file(layout.root)
        group = cache(lambda: _shared_with(layout, top.st_uid))
        _require(layout.root, top, layout.root, environment, lambda: None)
        for folder in layout.folders:
            try:
                status = folder.lstat()
            except FileNotFoundError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                raise _not_a_folder(folder, status)
            _require(folder, status, layout.root, environment, group)
        return layout.shared.exists()


def _require(
    folder: Path, status: os.stat_result, root: Path, environment: Mapping[str, str], group: Callable[[], int | None]
) -> None:
    """:param group: that the depot is shared with, whose members may add to a folder that is sticky."""
    if os.name != "posix":  # Windows: the user's own folder of caches is nobody else's by its access list
        return
    if status.st_uid not in {os.geteuid(), 0} and status.st_uid not in _trusted(environment):
        name = _user(status.st_uid)
        raise IntegrityError(
            f"{folder} belongs to {name}, who can put anything into the libraries that you take from it.",
            hint=f"Use your own depot: --depot DIR. If you trust {name} with all that you run: "
            f"export {TRUSTED_USERS}={name}",
        )
    if status.st_mode & stat.S_IWOTH:
        who, mode = "every user of this machine", "o-w"
    elif (
        not status.st_mode & stat.S_IWGRP
        or _is_of_one_user(status)
        or (status.st_mode & stat.S_ISVTX and status.st_gid == group())
    ):
        return
    else:
        who, mode = f"the group {_group_name(status.st_gid)}", "g-w"
    raise IntegrityError(
        f"{folder} may be written by {who}: libraries that you take from it could be anybody's.",
        hint=f"chmod -R {mode} {shlex.quote(str(root))}; or share it on purpose: flashdepot depot init --shared GROUP",
    )


def init(layout: DepotLayout, group: str | None) -> None:
    """Make a depot, or give one that is there the permissions it should have.

    :param group: whose members may add to it; ``None`` for a depot of one user.
    :raises UsageError: for a group that is not known, or where the system has none.
    :raises IntegrityError: when one of its folders is a link.
    :raises MissingToolError: when it is another user's, or its disk may not be written.
    """
    with disk_errors(layout.root):
        gid = _group_id(group) if group is not None else None
        make_folder(layout.root)
        layout.root.chmod(_PRIVATE)
        if gid is None:
            layout.shared.unlink(missing_ok=True)
        for folder, adds in _all_folders(layout, shared=gid is not None):
            if folder.is_symlink():
                raise _not_a_folder(folder, folder.lstat())
            make_folder(folder)
            if gid is not None:
                os.chown(folder, -1, gid)
            folder.chmod(_PRIVATE if gid is None else _SHARED if adds else _FIXED)
        layout.prepare()
        if gid is not None:
            write_json(layout.shared, {"schema": 1, "kind": "shared depot", "group": group, "gid": gid})


def _all_folders(layout: DepotLayout, *, shared: bool) -> Iterator[tuple[Path, bool]]:
    """The folders of a depot, and whether files are added to them.

    Of a shared one the folders of two digits are made at once: a member who made one could remove what others add to it.
    """
    sharded = set(layout.sharded)
    above = {parent for folder in sharded for parent in folder.parents}
    for folder in layout.folders:
        yield folder, folder not in {*sharded, *above, layout.catalog}
        if folder in sharded:
            shards = (folder / f"{number:02x}" for number in range(256))
            yield from ((shard, True) for shard in shards if shared or shard.is_dir())


class _Shared(msgspec.Struct, frozen=True):
    kind: Literal["shared depot"]
    gid: int


def _shared_with(layout: DepotLayout, owner: int) -> int | None:
    """The group that a depot was shared with by its owner; ``None`` for a private one."""
    try:
        status = layout.shared.lstat()
        shared = msgspec.convert(read_json(layout.shared), _Shared)
    except (OSError, IntegrityError, msgspec.ValidationError):
        return None
    believed = stat.S_ISREG(status.st_mode) and status.st_uid in {owner, 0} and not status.st_mode & 0o022
    return shared.gid if believed else None


def _trusted(environment: Mapping[str, str]) -> set[int]:
    """The users named by :data:`TRUSTED_USERS`, and for root the one who used sudo, as git trusts them."""
    import pwd  # noqa: PLC0415  (not on Windows, and a depot of one's own needs none of it)

    found: set[int] = set()
    for name in environment.get(TRUSTED_USERS, "").split(","):
        if name.strip().isdecimal():
            found.add(int(name))
        elif name.strip():
            try:
                found.add(pwd.getpwnam(name.strip()).pw_uid)
            except KeyError:
                raise UsageError(f"{TRUSTED_USERS} names '{name.strip()}', and there is no such user.") from None
    sudo = environment.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo.isdecimal():
        found.add(int(sudo))
    return found


def _is_of_one_user(status: os.stat_result) -> bool:
    """Whether the group of a folder is its owner's own, as distributions give every user one (Debian, Fedora)."""
    import grp  # noqa: PLC0415
    import pwd  # noqa: PLC0415

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name and set(group.gr_mem) <= {owner.pw_name}


def _group_id(name: str) -> int:
    if os.name != "posix":
        raise UsageError(
            "A depot is shared by permissions that Windows does not have.",
            hint="Give the folder an access list of your own, and name it: --depot DIR",
        )
    import grp  # noqa: PLC0415

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise UsageError(
            f"There is no group '{name}' on this machine.", hint=f"Make it first: groupadd {name}"
        ) from None


def _user(uid: int) -> str:
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    import grp  # noqa: PLC0415

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _not_a_folder(folder: Path, status: os.stat_result) -> IntegrityError:
    what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no folder"
    return IntegrityError(
        f"{folder} is {what}, and nothing but folders is expected there: no link is followed inside a depot.",
        hint="Remove it: what lay there is made again. To have the depot elsewhere: --depot DIR, or FLASHDEPOT_HOME.",
    )


def _is_a_file(root: Path) -> UsageError:
    return UsageError(f"{root} is a file, and a depot is a folder.", hint="Name a folder: --depot DIR")
