"""Where things are in a depot's folder, and whether a file there is still the one that was checked.

Plain files on purpose, so that any web server can serve them.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flashdepot.files.atomic import disk_errors, make_folder, write_atomic
from flashdepot.files.places import present

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


def hidden_sibling(path: Path) -> Path:
    """Return a name next to ``path`` that nobody else uses. If a kill leaves it behind, gc removes it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def real_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, in order; no link is followed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def inside(folder: Path) -> list[Path]:
    """Return what is in a folder, in order; nothing when it is not there."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def records(folder: Path) -> Iterator[Path]:
    """Yield the records in the folders of two digits of a folder, in order; no link is followed."""
    for shard in real_folders(folder):
        yield from sorted(path for path in shard.glob("[0-9a-f]*.json") if not path.is_symlink())


def is_leftover(path: Path) -> bool:
    """Whether a name is a temporary one, next to the file it was to become."""
    return path.name.startswith(".") and path.name.endswith((".tmp", ".tmp.part", ".tmp.old"))


class DepotLayout:
    """The paths of a depot. Asking for one makes nothing.

    In a depot that several users share, a path is where this user finds what belongs there; where it may be written is
    asked of :func:`flashdepot.files.places.writable`.
    """

    def __init__(self, root: Path, *, is_shared: bool = False) -> None:
        self.root = root
        self.is_shared = is_shared
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
        self.shared = root / "shared.json"
        """The file that says whom a depot is shared with, if it is."""
        self.sharded = (self.blobs, root / "actions", root / "intents")
        """The folders whose files are in folders named by the first two digits of their names."""
        named = ("artifacts", "libraries", "locks")
        fetched = (self.catalog, self.toolchains, self.upstreams, self.downloads)
        others = (*fetched, self.logs, self.temporary, self.quarantine)
        self.folders = (self.blobs.parent, *self.sharded, *(root / name for name in named), *others)
        """Every folder of a depot that has a name of its own, those that are in another after it."""

    def blob(self, digest: str) -> Path:
        """Return the file of a blob."""
        return self._present(self.blobs / digest[:2] / digest)

    def intent(self, intent_key: str) -> Path:
        """Return the file that lists the actions of an intent."""
        return self._present(self.root / "intents" / intent_key[:2] / f"{intent_key}.json")

    def action(self, action_key: str) -> Path:
        """Return the file that records one compiler run."""
        return self._present(self.root / "actions" / action_key[:2] / f"{action_key}.json")

    def artifact(self, recipe_key: str) -> Path:
        """Return the file of one artifact's manifest."""
        return self._present(self.root / "artifacts" / f"{recipe_key}.json")

    def library(self, recipe_key: str) -> Path:
        """Return the folder in which a library is put together."""
        return self._present(self.root / "libraries" / recipe_key[:16])

    def lock(self, key: str) -> Path:
        """Return the lock file of a key."""
        return self.root / "locks" / f"{key}.lock"

    def _present(self, path: Path) -> Path:
        return present(path) if self.is_shared else path

    def prepare(self) -> None:
        """Make the depot's folder, and the notes in it that say what it is, unless they are there.

        :raises MissingToolError: when the disk is full or may not be written.
        """
        tag = self.root / "CACHEDIR.TAG"
        if not tag.exists():
            with disk_errors(self.root):
                write_atomic(self.root / "README.txt", _README)
                write_atomic(tag, _CACHE_TAG)

    def new_temporary(self, purpose: str) -> Path:
        """Return a path in ``tmp/`` that nobody else has. The folder is made, the path is not."""
        self.prepare()
        with disk_errors(self.root):
            make_folder(self.temporary)
        return self.temporary / f"{purpose}-{os.urandom(8).hex()}"

    def new_quarantine(self, name: str) -> Path:
        """Return a path in ``quarantine/`` for a damaged file; :raises OSError: when the folder cannot be made."""
        self.quarantine.mkdir(exist_ok=True)
        return self.quarantine / f"{name}.{os.urandom(4).hex()}"


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

    @property
    def age(self) -> float:
        """Seconds since the last change."""
        return time.time() - self.mtime_ns / 1e9


def is_regular(path: Path) -> bool:
    """Whether something is a file of its own, and no link; :raises OSError: when that cannot be determined."""
    return stat.S_ISREG(path.lstat().st_mode)


def mark_used(path: Path) -> None:
    """Record in a file's modification time that it was used. In a depot that may not be written nothing happens."""
    with contextlib.suppress(OSError):
        if Fingerprint.of(path).age > USE_RESOLUTION:
            os.utime(path)


def move_if_unchanged(path: Path, seen: Fingerprint, destination: Path) -> bool:
    """Move a file or folder away if it is still what was found.

    It is checked after the move, because before it another process could still change it: then it is put back.

    :returns: whether it is at ``destination`` now.
    :raises OSError: when it cannot be moved.
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


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all in it; nothing happens when it is not there."""
    if path.is_dir() and not path.is_symlink():
        from shutil import rmtree  # noqa: PLC0415  (a depot hit removes nothing)

        rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
