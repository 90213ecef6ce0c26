"""Where things are in a depot's folder, who may write there, and whether a file there is still the one that was checked.

Plain files on purpose, so that any web server can serve them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from flashdepot.errors import IntegrityError, MissingToolError, UsageError
from flashdepot.files.disk import ANOTHER_DEPOT, disk_errors, hidden_sibling, make_folder, make_link, write_atomic

_README = b"""This folder is a flashdepot depot: compiled FlashAttention kernels and libraries.

blobs/       immutable bytes, each named by its SHA-256
actions/     what each compiler run read and produced; intents/ is the way to them
artifacts/   one manifest a library
libraries/   libraries put together from blobs, ready to link
toolchains/, upstreams/, downloads/   compilers, sources and wheels that were fetched
logs/, locks/, tmp/, quarantine/   compiler output, locks, unfinished work, files found damaged

Everything here can be made again. 'flashdepot depot clean' frees space, 'flashdepot depot verify' checks every byte.
"""
_CACHE_TAG = b"""Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache that flashdepot made; backup programs may skip it (https://bford.info/cachedir/).
"""


class DepotLayout:
    """The paths of a depot. Asking for one makes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.temporary = root / "tmp"
        self.quarantine = root / "quarantine"
        self.logs = root / "logs"
        self.toolchains = root / "toolchains"
        self.upstreams = root / "upstreams"
        self.downloads = root / "downloads"
        """Wheels that others published, each in a folder of its own, and what has arrived of one so far."""
        self.catalog = root / "catalog"
        """What others have published, as it was when last checked."""
        self.estimates = root / "estimates.json"
        """What compilations cost on this machine."""
        self.sharded = (self.blobs, root / "actions", root / "intents")
        """The folders whose files are in folders named by the first two digits of their names."""
        named = (root / name for name in ("artifacts", "libraries", "locks"))
        fetched = (self.catalog, self.toolchains, self.upstreams, self.downloads)
        self.folders = (
            *(self.blobs.parent, *self.sharded, *named, *fetched),
            *(self.logs, self.temporary, self.quarantine),
        )
        """Every folder of a depot that has a name of its own, those that are in another after it."""

    def blob(self, digest: str) -> Path:
        """The file of a blob."""
        return self.blobs / digest[:2] / digest

    def intent(self, intent_key: str) -> Path:
        """The file that lists the actions of an intent."""
        return self.root / "intents" / intent_key[:2] / f"{intent_key}.json"

    def action(self, action_key: str) -> Path:
        """The file that records one compiler run."""
        return self.root / "actions" / action_key[:2] / f"{action_key}.json"

    def artifact(self, recipe_key: str) -> Path:
        """The file of one artifact's manifest."""
        return self.root / "artifacts" / f"{recipe_key}.json"

    def library(self, recipe_key: str) -> Path:
        """The folder in which a library is put together."""
        return self.root / "libraries" / recipe_key[:16]

    def lock(self, key: str) -> Path:
        """The lock file of a key."""
        return self.root / "locks" / f"{key}.lock"

    def prepare(self) -> None:
        """Make the depot's folder, and the notes in it that say what it is, unless they are there."""
        tag = self.root / "CACHEDIR.TAG"
        if not tag.exists():
            with disk_errors(self.root):
                write_atomic(self.root / "README.txt", _README)
                if os.name == "posix":  # where a library could not be put together, before anybody compiles one
                    link = hidden_sibling(self.root / "link")
                    make_link(link, "README.txt")
                    link.unlink()
                write_atomic(tag, _CACHE_TAG)

    def new_temporary(self, purpose: str) -> Path:
        """A path in ``tmp/`` that nobody else has. The folder is made, the path is not."""
        self.prepare()
        with disk_errors(self.root):
            make_folder(self.temporary)
        return self.temporary / f"{purpose}-{os.urandom(8).hex()}"

    def set_aside(self, path: Path, seen: Fingerprint) -> str:
        """Move a damaged file to ``quarantine/``; :returns: what became of it, empty when others replaced or removed it."""
        destination = self.quarantine / f"{path.name}.{os.urandom(4).hex()}"
        try:
            self.quarantine.mkdir(exist_ok=True)
            return f"was moved to {destination}" if move_if_unchanged(path, seen, destination) else ""
        except OSError as error:
            return f"could not be moved away ({error.strerror})"


def key_of(path: Path) -> str:
    """The key that a file or folder is named by."""
    return path.name.partition(".")[0]


def is_leftover(path: Path) -> bool:
    """Whether a name is a temporary one, next to the file it was to become."""
    return path.name.startswith(".") and path.name.endswith((".tmp", ".tmp.part", ".tmp.old"))


def inside(folder: Path) -> list[Path]:
    """What is in a folder, in order; nothing when it is not there."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def real_folders(folder: Path) -> list[Path]:
    """The folders in a folder, in order; no link is followed."""
    return [path for path in inside(folder) if path.is_dir() and not path.is_symlink()]


def records(folder: Path) -> Iterator[Path]:
    """The records in the folders of two digits of a folder, in order; no link is followed."""
    for shard in real_folders(folder):
        yield from sorted(path for path in shard.glob("[0-9a-f]*.json") if not path.is_symlink())


USE_RESOLUTION = 15 * 60.0
"""Seconds within which a use is not recorded again, so that a hit rarely writes."""


class Fingerprint(NamedTuple):
    """Size in bytes, time of the last change in nanoseconds, and inode."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Look at a file or folder, not through a symbolic link; :raises OSError: when that cannot be done."""
        status = path.lstat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


def mark_used(path: Path) -> bool:
    """Record in a modification time that a file was used, so that gc leaves it; :returns: whether that could be done."""
    try:
        if time.time() - path.lstat().st_mtime > USE_RESOLUTION:
            os.utime(path)
    except OSError:
        return False
    return True


def move_if_unchanged(path: Path, seen: Fingerprint, destination: Path) -> bool:
    """Move a file or folder away if it is still what was found; :returns: whether it is at ``destination`` now.

    It is checked after the move, because before it another process could still change it: then it is put back.
    """
    try:
        path.rename(destination)
    except FileNotFoundError:
        return False
    if Fingerprint.of(destination) == seen:
        return True
    if path.exists():  # made again meanwhile
        remove(destination)
    else:
        destination.rename(path)
    return False


def moment(seconds: float) -> datetime:
    """The time of a file; Windows's own conversion refuses one before 1970."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all in it; nothing happens when it is not there."""
    if path.is_dir() and not path.is_symlink():
        from shutil import rmtree  # noqa: PLC0415  (a depot hit removes nothing)

        rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


TRUSTED_USERS = "FLASHDEPOT_TRUSTED_USERS"
"""Environment variable: names or numbers of users, with commas, whose depots are used."""


def require_safe(layout: DepotLayout, environment: Mapping[str, str] = os.environ) -> None:
    """Check a depot's folders, whenever it is opened: what is in them is linked, executed and loaded by anyone who uses it.

    No folder is a link, all belong to the user or to somebody whom the user trusts, and nobody else may write into them.
    One that is not there yet is as it should be.
    """
    with disk_errors(layout.root):
        try:
            top = layout.root.stat()
        except FileNotFoundError:
            _require_no_broken_link(layout.root)
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
        _require_no_broken_link(layout.root)
        make_folder(layout.root)
        layout.root.chmod(0o755)
        if os.name == "posix" and layout.root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise MissingToolError(
                f"The file system of {layout.root} keeps no permissions: where it is mounted is said who may write there.",
                hint=f"Use a depot on another file system: {ANOTHER_DEPOT}",
            )
        for folder in layout.folders:
            if folder.is_symlink():
                raise _not_a_folder(folder, folder.lstat())
            make_folder(folder)
            for path in (folder, *(folder.glob("[0-9a-f][0-9a-f]") if folder in layout.sharded else ())):
                path.chmod(0o755)
        layout.prepare()


def _require_no_broken_link(root: Path) -> None:
    if root.is_symlink() and not root.exists():
        raise UsageError(
            f"{root} is a symbolic link to {root.readlink()}, which is not there.",
            hint=f"Mount or make that folder, or use another depot: {ANOTHER_DEPOT}",
        )


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
        who = "every user of this machine"
    elif status.st_mode & stat.S_IWGRP and not _is_of_one_user(status):
        who = f"its group ({status.st_gid})"
    else:
        return
    raise IntegrityError(
        f"{folder} may be written by {who}: anybody could have made the libraries in it.",
        hint=f"Take that right away: flashdepot depot init --depot {shlex.quote(str(root))}\n"
        "To share libraries: flashdepot remote add NAME file:///FOLDER",
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
