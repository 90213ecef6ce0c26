"""SHA-256 of files: many at once, and each read only once while it cannot have changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flashdepot.files.atomic import sha256_file

_WORTH_THREADS = 32 << 20
"""Bytes from which threads pay for their import: 15 ms, in which one core hashes about 25 MB."""

_SETTLED = 2.0
"""Seconds after which a second change must show in a file's times: the coarsest clock of a file system (FAT)."""

Hasher = Callable[[Sequence[Path]], Sequence["str | None"]]
"""The SHA-256 of each file, ``None`` for one that cannot be read."""


def sha256_files(paths: Sequence[Path]) -> list[str | None]:
    """SHA-256 of each file, ``None`` for one that cannot be read; on all cores when they are large together."""
    if sum(map(_size, paths)) < _WORTH_THREADS:
        return [_sha256_or_none(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor() as pool:
        return list(pool.map(_sha256_or_none, paths))


class _State(NamedTuple):
    """What the kernel changes whenever it changes a file's bytes. No program can set ``ctime_ns``, as utime sets mtime."""

    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> _State:
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class KnownDigests:
    """SHA-256 of the files of one process, for work that needs the same file twice: to choose it and to hand it out.

    A file is read again as soon as its size, its mtime or its ctime is another one, under whatever name. Nothing of
    this outlives the process. On Windows, which has no such ctime, every file is read each time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[_State, str]] = {}

    def of(self, path: Path) -> str:
        """The SHA-256 of a file; :raises OSError: when it cannot be read."""
        status = path.stat()
        if known := self._remembered(status):
            return known
        digest = sha256_file(path)
        self._remember(path, status, digest)
        return digest

    def of_all(self, paths: Sequence[Path]) -> list[str | None]:
        """The SHA-256 of each file, ``None`` for one that cannot be read."""
        statuses = {path: status for path in paths if (status := _status(path)) is not None}
        known: dict[Path, str | None] = {}
        known.update((path, right) for path, status in statuses.items() if (right := self._remembered(status)))
        unknown = [path for path in paths if path not in known]
        for path, digest in zip(unknown, sha256_files(unknown), strict=True):
            known[path] = digest
            if digest is not None and path in statuses:
                self._remember(path, statuses[path], digest)
        return [known[path] for path in paths]

    def _remembered(self, status: os.stat_result) -> str:
        state, digest = self._known.get((status.st_dev, status.st_ino), (None, ""))
        return digest if state == _State.of(status) else ""

    def _remember(self, path: Path, before: os.stat_result, digest: str) -> None:
        after = _status(path)
        settled = time.time() - max(before.st_ctime, before.st_mtime) > _SETTLED
        if os.name != "nt" and settled and after is not None and _State.of(after) == _State.of(before):
            self._known[before.st_dev, before.st_ino] = (_State.of(before), digest)


def contents(folder: Path, hasher: Hasher = sha256_files) -> dict[str, str]:
    """What is in a folder and all folders below it, by its name with ``/``.

    A regular file stands with its SHA-256, a symbolic link as ``-> target``, and is never followed. What cannot be
    read, or is neither, stands with an empty text.

    :raises OSError: when the folder cannot be listed.
    """
    found: dict[str, str] = {}
    regular: list[tuple[str, Path]] = []
    for name, entry in _walk(folder, ""):
        if entry.is_symlink():
            found[name] = f"-> {Path(entry.path).readlink()}"
        elif entry.is_file(follow_symlinks=False):
            regular.append((name, Path(entry.path)))
        else:
            found[name] = ""
    digests = hasher([path for _, path in regular])
    found.update((name, digest or "") for (name, _), digest in zip(regular, digests, strict=True))
    return found


def differences(expected: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """The names that are missing, too many or otherwise in one of two answers of :func:`contents`, in order."""
    return sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name))


def _walk(folder: Path, prefix: str) -> Iterable[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry


def _sha256_or_none(path: Path) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None


def _size(path: Path) -> int:
    status = _status(path)
    return status.st_size if status else 0


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
