"""Files below a folder, reached through no symbolic link, and the regular files of an untrusted tree."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from flashdepot.errors import UsageError
from flashdepot.files.disk import sha256_of

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a named pipe in place of a file must not block the program
_BINARY = getattr(os, "O_BINARY", 0)
_REPARSE_POINT = 0x400  # FILE_ATTRIBUTE_REPARSE_POINT: symbolic links and junctions (Windows SDK, winnt.h)


def plain_path(root: Path, place: str, *, create: bool = False) -> Path:
    """The path of a place, with ``/``, below a folder whose own path may lead through links.

    :param create: make the folders on the way. Who may write into ``root`` as a group may write into them.
    :raises OSError: when a folder on the way is not there, or is a symbolic link, a junction or a file.
    """
    *folders, name = PurePosixPath(place).parts
    path = root
    for folder in folders:
        path = plain_folder(path, folder, create=create)
    return path / name


def plain_folder(root: Path, name: str, *, create: bool = False) -> Path:
    """A folder in another; as :func:`plain_path`."""
    path = root / name
    if create:
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            ours, new = root.stat(), path.stat()
            if ours.st_mode & stat.S_IWGRP and not ours.st_mode & stat.S_IWOTH and ours.st_gid == new.st_gid:
                path.chmod(stat.S_IMODE(new.st_mode) | stat.S_IWGRP)
    if not is_plain_folder(path.lstat()):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return path


def status_of(path: Path) -> os.stat_result | None:
    """What is there, not through a link; ``None`` when nothing is."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def open_plain(path: Path) -> IO[bytes]:
    """Open a regular file to read it; :raises OSError: when it is not there, or anything else than a regular file."""
    if is_plain_file(path.lstat()):
        file = os.fdopen(os.open(path, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def create_plain(path: Path) -> IO[bytes]:
    """Create a file to write it, which nobody else sees until its mode is set; :raises FileExistsError: when it is there."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY, 0o600), "w+b")


def is_plain_folder(status: os.stat_result) -> bool:
    """Whether a status that was not taken through a link is of a folder, and of no junction of Windows."""
    return stat.S_ISDIR(status.st_mode) and not getattr(status, "st_file_attributes", 0) & _REPARSE_POINT


def is_plain_file(status: os.stat_result) -> bool:
    """Whether a status that was not taken through a link is of a regular file."""
    return stat.S_ISREG(status.st_mode) and not getattr(status, "st_file_attributes", 0) & _REPARSE_POINT


_FILES, _BYTES, _TEXT = 100_000, 4 << 30, 64 << 20


class PlainFiles:
    """The files below a folder, by their names with ``/``. The way to the folder is the user's own, links included.

    Every method raises :class:`UsageError` for what is neither a regular file nor a folder, and for too much of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def below(self, *tops: str) -> Iterator[str]:
        """Every file of these files and folders, as far as they are there; not what editors and Python leave behind."""
        count = size = 0
        for top in tops:
            for name, file_size in self._found(PurePosixPath(top)):
                count, size = count + 1, size + file_size
                if count > _FILES or size > _BYTES:
                    raise UsageError(
                        f"{self.root} has more than {_FILES} files or {_BYTES >> 30} GiB, which no source has: at {name}.",
                        hint="Name the folder of a source, without what was built in it.",
                    )
                yield name

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return next(self.below(name), None) == name

    def read(self, name: str) -> bytes:
        """The bytes of a file; :raises FileNotFoundError: when it is not there."""
        with self._opened(name) as file:
            data = file.read(_TEXT + 1)
        if len(data) > _TEXT:
            raise self._refused(name, f"larger than {_TEXT >> 20} MiB")
        return data

    def text(self, name: str) -> str:
        """The text of a file with its lines ended by LF, empty where there is none."""
        if not self.has(name):
            return ""
        return io.TextIOWrapper(io.BytesIO(self.read(name)), encoding="utf-8", errors="replace").read()

    def digest(self, name: str) -> str:
        """SHA-256 of a file's bytes, in hexadecimal; raises as :meth:`read`."""
        with self._opened(name) as file:
            return sha256_of(file)

    def _found(self, path: PurePosixPath) -> Iterator[tuple[str, int]]:
        """Names and sizes of what is at a path and below it."""
        with contextlib.suppress(FileNotFoundError):
            yield from self._walk(self._place(path), path) if path.parts else self._inside(self.root, path)

    def _walk(self, place: Path, path: PurePosixPath) -> Iterator[tuple[str, int]]:
        status = place.lstat()
        if stat.S_ISREG(status.st_mode):
            yield path.as_posix(), status.st_size
        elif is_plain_folder(status):
            yield from self._inside(place, path)
        else:
            raise self._refused(str(path), "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file")

    def _inside(self, folder: Path, path: PurePosixPath) -> Iterator[tuple[str, int]]:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208  (names, of which few are taken as paths)
            if not (name.startswith(".") or name.endswith("~") or name == "__pycache__"):
                yield from self._walk(folder / name, path / name)

    def _place(self, path: PurePosixPath) -> Path:
        try:
            return plain_path(self.root, str(path))
        except NotADirectoryError as error:
            raise self._refused(str(path.parent), "or leads through, a symbolic link") from error

    def _opened(self, name: str) -> IO[bytes]:
        try:
            return open_plain(self._place(PurePosixPath(name)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._refused(name, "no regular file that can be read") from error

    def _refused(self, name: str, what: str) -> UsageError:
        return UsageError(
            f"{self.root / name} is {what}: only regular files of a source are read, and no link is followed.",
            hint=f"Replace it by what it leads to, or name a copy: cp -rL {shlex.quote(str(self.root))} COPY",
        )
