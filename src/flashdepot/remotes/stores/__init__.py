"""Where a remote's bytes lie: a bucket, a web server, a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from flashdepot.errors import NetworkError
from flashdepot.model.remote import BUCKETS, RemoteSettings

Received = Callable[[int], None]
"""Called with the number of bytes that have just arrived; what it raises ends the transfer."""


class DeniedError(NetworkError):
    """The place answers, and does not let this user read there, or hides what is not there."""


class Store(Protocol):
    """A place of bytes by name. Every method raises :class:`NetworkError` when the place does not answer, or refuses."""

    def read(self, place: str, longest: int) -> bytes | None:
        """A small file, ``None`` when there is none; :raises IntegrityError: when it is longer than ``longest``."""

    def fetch(self, place: str, destination: Path, received: Received) -> None:
        """Write a file to ``destination``, going on from the bytes that are there.

        :raises FileNotFoundError: when there is none.
        """

    def size(self, place: str) -> int | None:
        """The size of a file in bytes, ``None`` when there is none."""

    def write(self, place: str, source: Path | bytes) -> None:
        """Put a file there, whole or not at all, in the place of one that is there."""


def open_store(remote: RemoteSettings) -> Store:
    """The store of a remote. Nothing is asked yet.

    :raises MissingToolError: when a package for it is not installed.
    """
    scheme = remote.url.partition(":")[0]
    if scheme == "file":
        from flashdepot.remotes.stores.folder import FolderStore  # noqa: PLC0415

        return FolderStore(remote)
    if scheme in BUCKETS:
        from flashdepot.remotes.stores.bucket import BucketStore  # noqa: PLC0415

        return BucketStore(remote)
    from flashdepot.remotes.stores.web import WebStore  # noqa: PLC0415

    return WebStore(remote)
