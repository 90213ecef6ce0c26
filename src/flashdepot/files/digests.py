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
    return _hashed(paths, sum(status.st_size for path in paths if (status := _status(path))))


def _hashed(paths: Sequence[Path], size: int) -> list[str | None]:
    if size < _WORTH_THREADS:
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

    A file is read again as soon as its size, its mtime or its ctime is another one, under whatever name. On Windows,
    which has no such ctime, every file is read each time.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[_State, str]] = {}

    def of(self, path: Path) -> str:
        """The SHA-256 of a file; :raises OSError: when it cannot be read."""
        if (digest := self.of_all([path])[0]) is None:
            digest = sha256_file(path)  # raises what is wrong
        return digest

    def of_all(self, paths: Sequence[Path]) -> list[str | None]:
        """The SHA-256 of each file, ``None`` for one that cannot be read."""
        statuses = {path: status for path in paths if (status := _status(path)) is not None}
        known: dict[Path, str | None] = {}
        for path, status in statuses.items():
            state, digest = self._known.get((status.st_dev, status.st_ino), (None, ""))
            if state == _State.of(status):
                known[path] = digest
        unknown = [path for path in paths if path not in known]
        size = sum(statuses[path].st_size for path in unknown if path in statuses)
        for path, found in zip(unknown, _hashed(unknown, size), strict=True):
            known[path] = found
            if found is not None and path in statuses:
                self._remember(path, statuses[path], found)
        return [known[path] for path in paths]

    def _remember(self, path: Path, before: os.stat_result, digest: str) -> None:
        after = _status(path)
        settled = time.time() - max(before.st_ctime, before.st_mtime) > _SETTLED
        if os.name != "nt" and settled and after is not None and _State.of(after) == _State.of(before):
            self._known[before.st_dev, before.st_ino] = (_State.of(before), digest)


def contents(folder: Path, hasher: Hasher = sha256_files) -> dict[str, str]:
    """What is in a folder and all folders below it, by its name with ``/``; :raises OSError: when it cannot be listed.

    A regular file stands with its SHA-256, a symbolic link as ``-> target``, and is never followed. What cannot be
    read, or is neither, stands with an empty text.
    """
    found: dict[str, str] = {}
    regular: dict[str, Path] = {}
    for name, entry in _walk(folder, ""):
        if entry.is_symlink():
            found[name] = f"-> {Path(entry.path).readlink()}"
        elif entry.is_file(follow_symlinks=False):
            regular[name] = Path(entry.path)
        else:
            found[name] = ""
    digests = hasher([*regular.values()])
    return found | {name: digest or "" for name, digest in zip(regular, digests, strict=True)}


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


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
