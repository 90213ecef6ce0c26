"""Folders by the bytes of every file: SHA-256 of many files, each read once, and folders that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flashdepot.errors import IntegrityError
from flashdepot.files.disk import disk_errors, hidden_sibling, sha256_file
from flashdepot.files.documents import read_record, write_record
from flashdepot.model.codec import digest_of

_WORTH_THREADS = 32 << 20
"""Bytes from which threads pay for their import: 15 ms, in which one core hashes about 25 MB."""

_SETTLED = 2.0
"""Seconds after which a second change must show in a file's times: the coarsest clock of a file system (FAT)."""

Hasher = Callable[[Sequence[Path]], Sequence["str | None"]]
"""The SHA-256 of each file, ``None`` for one that cannot be read."""


def sha256_files(paths: Sequence[Path]) -> list[str | None]:
    """SHA-256 of each file, ``None`` for one that cannot be read; on all cores when they are large together."""
    return _hashed(paths, sum(stamp.size for path in paths if (stamp := Stamp.of(path))))


def _hashed(paths: Sequence[Path], size: int) -> list[str | None]:
    if size < _WORTH_THREADS:
        return [_sha256_or_none(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor() as pool:
        return list(pool.map(_sha256_or_none, paths))


class Stamp(NamedTuple):
    """What the kernel changes whenever it changes a file's bytes. No program can set ``ctime_ns``, as utime sets mtime."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path | str) -> Stamp | None:
        """Look at a file; ``None`` when that cannot be done."""
        try:
            status = os.stat(path)  # noqa: PTH116  (hundreds of files for each unit of a build)
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def changed(self) -> float:
        """When the file was last changed, by the clock, in seconds."""
        return max(self.mtime_ns, self.ctime_ns) / 1e9


class KnownDigests:
    """SHA-256 of the files of one process, for work that needs the same file twice: to choose it and to hand it out.

    A file is read again as soon as its size, its mtime or its ctime is another one, under whatever name. On Windows,
    which has no such ctime, every file is read each time.
    """

    def __init__(self) -> None:
        self._known: dict[Stamp | None, str] = {}

    def of(self, path: Path) -> str:
        """The SHA-256 of a file; :raises OSError: when it cannot be read."""
        if (digest := self.of_all([path])[0]) is None:
            digest = sha256_file(path)  # raises what is wrong
        return digest

    def of_all(self, paths: Sequence[Path]) -> list[str | None]:
        """The SHA-256 of each file, ``None`` for one that cannot be read."""
        stamps = {path: Stamp.of(path) for path in paths}
        known = {path: self._known.get(stamp) for path, stamp in stamps.items()}
        unknown = [path for path, digest in known.items() if digest is None]
        size = sum(stamp.size for path in unknown if (stamp := stamps[path]))
        for path, digest in zip(unknown, _hashed(unknown, size), strict=True):
            known[path], stamp = digest, stamps[path]
            settled = stamp is not None and time.time() - stamp.changed > _SETTLED
            if digest is not None and settled and os.name != "nt" and Stamp.of(path) == stamp:
                self._known[stamp] = digest
        return [known[path] for path in paths]


def contents(folder: Path, hasher: Hasher = sha256_files) -> dict[str, str]:
    """What is in a folder and all folders below it, by its name with ``/``; :raises OSError: when it cannot be listed.

    A regular file is listed with its SHA-256, a symbolic link as ``-> target``, and is never followed. What cannot be
    read, or is neither, is listed with an empty text.
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


def touch(path: Path) -> None:
    """Say by a file's or folder's modification time that it is used now; in a cache that may not be written nothing does."""
    with contextlib.suppress(OSError):
        os.utime(path)


_LISTING = ".flashdepot-files.json"


def make_whole(folder: Path, fill: Callable[[Path], None], tree: str | None = None) -> Path:
    """Return ``folder``, made by ``fill`` if it is not there whole. gc leaves what was used since a running build began.

    ``fill`` gets the path of a folder next to it that does not exist yet, which takes the name in one step. Every byte is
    read again each time: a folder that has changed is made again.

    :param tree: what :func:`tree_digest` must give for it, else :class:`IntegrityError`; ``None`` where nobody knows yet.
    """
    touch(folder)  # before it is read: gc moves nothing away that was marked after its plan
    if not is_whole(folder, tree):
        _make(folder, fill, tree)
    return folder


def _make(folder: Path, fill: Callable[[Path], None], tree: str | None) -> None:
    from shutil import rmtree  # noqa: PLC0415  (a depot hit makes no folder)

    temporary = hidden_sibling(folder)
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            fill(temporary)
            held = contents(temporary)
            if tree is not None and digest_of(held) != tree:
                raise IntegrityError(
                    f"{folder.name} unpacks to other files than those on record: expected a digest of {tree}, "
                    f"found {digest_of(held)}.",
                    hint="Internal error in flashdepot's data: use another version, and report it.",
                )
            write_record(temporary / _LISTING, held)
            _take_name(temporary, folder, tree)
        finally:
            rmtree(temporary, ignore_errors=True)


def is_whole(folder: Path, tree: str | None = None) -> bool:
    """Whether a folder of :func:`make_whole` holds the same bytes under the same names, and nothing else."""
    return changed_files(folder, tree) == []


def changed_files(folder: Path, tree: str | None = None) -> list[str] | None:
    """The files of such a folder that are missing, too many or changed; ``None`` when nobody can tell which."""
    try:
        held = _held(folder)
    except OSError:
        return None
    if tree is not None and digest_of(held) == tree:
        return []
    try:
        listed = read_record(folder / _LISTING)
    except (OSError, IntegrityError):
        return None
    if not isinstance(listed, dict) or (tree is not None and digest_of(listed) != tree):
        return None
    return differences(listed, held)


def tree_digest(folder: Path) -> str:
    """One SHA-256 for the names and bytes of all files of a folder, wherever it is."""
    return digest_of(_held(folder))


def _held(folder: Path) -> Mapping[str, str]:
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    held = contents(folder)
    held.pop(_LISTING, None)
    return held


def _take_name(temporary: Path, folder: Path, tree: str | None) -> None:
    if folder.exists() and not is_whole(folder, tree):
        from shutil import rmtree  # noqa: PLC0415

        discarded = temporary.with_name(temporary.name + ".old")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(discarded)
        rmtree(discarded, ignore_errors=True)
    try:
        temporary.rename(folder)
    except OSError:
        if not is_whole(folder, tree):  # otherwise another process was first, with the same content
            raise
