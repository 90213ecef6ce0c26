"""Where things are in a depot's folder, and whether a file there is still the one that was checked.

Plain files on purpose, so that any web server can serve them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flashdepot.files.atomic import disk_errors, make_folder, write_atomic

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
    """Record in a modification time that a file was used, so that gc leaves it untouched.

    :returns: whether that is on record; not when the file is gone or may not be touched.
    """
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


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all in it; nothing happens when it is not there."""
    if path.is_dir() and not path.is_symlink():
        from shutil import rmtree  # noqa: PLC0415  (a depot hit removes nothing)

        rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
