"""Immutable bytes, each named by its SHA-256 and hashed before it is used."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from flashdepot.depot.layout import DepotLayout, Fingerprint, key_of, mark_used, real_folders
from flashdepot.errors import IntegrityError
from flashdepot.files.disk import copy_hashed, disk_errors, protect
from flashdepot.files.folders import KnownDigests
from flashdepot.model.codec import is_digest

_NO_HARD_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class Blobs:
    """The blobs of one depot.

    :param on_problem: called with a sentence for every blob that is found damaged.
    :param digests: what this process has hashed.
    """

    def __init__(self, layout: DepotLayout, on_problem: Callable[[str], None], digests: KnownDigests) -> None:
        self._layout = layout
        self._on_problem = on_problem
        self._digests = digests

    def put_file(self, path: Path) -> str:
        """Keep a copy of a file and return its SHA-256."""
        temporary = self._layout.new_temporary("put")
        with disk_errors(self._layout.root):
            try:
                digest = _copy(path, temporary)
                protect(temporary)
                if self.find(digest) is None or not self.mark_used(digest):
                    blob = self._layout.blob(digest)
                    blob.parent.mkdir(parents=True, exist_ok=True)
                    temporary.replace(blob)
            finally:
                temporary.unlink(missing_ok=True)
        return digest

    def find(self, digest: str) -> Path | None:
        """The file of a blob whose bytes are right, or ``None``. A damaged one is moved to ``quarantine/`` and reported."""
        blob = self._layout.blob(digest)
        try:
            seen = Fingerprint.of(blob)
            actual = self._digests.of(blob) if stat.S_ISREG(blob.lstat().st_mode) else ""
        except FileNotFoundError:
            return None
        except OSError as error:
            self._on_problem(f"{blob} cannot be read: {error.strerror}. What it holds will be made again.")
            return None
        if actual == digest:
            return blob
        wrong = f"its {seen.size} bytes have SHA-256 {actual}" if actual else "it is not a regular file"
        done = self._layout.set_aside(blob, seen) or "is gone already"
        self._on_problem(
            f"Blob {digest} is damaged: {wrong}. It {done}; what it held will be made again when it is next needed."
        )
        return None

    def has(self, digest: str) -> bool:
        """Whether there is a file for a blob, whatever its bytes are."""
        return self._layout.blob(digest).exists()

    def verified_path(self, digest: str) -> Path:
        """The file of a blob, which nobody may write to; :raises IntegrityError: when it is missing or damaged."""
        blob = self.find(digest)
        if blob is None:
            raise IntegrityError(
                f"Blob {digest} of the depot {self._layout.root} is missing or damaged, and a record needs it.",
                hint="Run the same command again: what is missing is made again. "
                "'flashdepot depot verify' shows what else is damaged.",
            )
        return blob

    def link_or_copy(self, digest: str, destination: Path) -> None:
        """Put a blob's bytes at a new ``destination``, by a read-only hard link where possible."""
        blob = self.verified_path(digest)
        with disk_errors(destination.parent):
            try:
                os.link(blob, destination)
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                if (actual := _copy(blob, destination)) != digest:
                    destination.unlink()
                    raise IntegrityError(f"{blob} is damaged: expected SHA-256 {digest}, found {actual}.") from error
                protect(destination)

    def mark_used(self, digest: str) -> bool:
        """Record that a blob was used; see :func:`flashdepot.depot.layout.mark_used`."""
        return mark_used(self._layout.blob(digest))

    def files(self) -> Iterator[Path]:
        """The file of every blob there is, in order, unverified."""
        for shard in real_folders(self._layout.blobs):
            yield from sorted(blob for blob in shard.iterdir() if is_digest(key_of(blob)))


def _copy(source: Path, destination: Path) -> str:
    """Copy a file into a new one and on to the disk, nothing is left of a failure; :returns: the SHA-256 of its bytes."""
    with source.open("rb") as reader:
        writer = destination.open("xb")
        try:
            with writer:
                digest = copy_hashed(reader, writer)
                writer.flush()
                os.fsync(writer.fileno())
        except BaseException:  # behind its end: Windows removes no file that is open
            destination.unlink(missing_ok=True)
            raise
    return digest
