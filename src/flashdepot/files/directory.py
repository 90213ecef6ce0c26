"""Folders in which no symbolic link is followed, and the regular files of an untrusted tree."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from flashdepot.errors import UsageError
from flashdepot.files.atomic import sha256_of

if TYPE_CHECKING:
    from typing_extensions import Self


_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a named pipe in place of a file must not block the program
_BINARY = getattr(os, "O_BINARY", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_REPARSE_POINT = 0x400  # FILE_ATTRIBUTE_REPARSE_POINT: symbolic links and junctions (Windows SDK, winnt.h)

HAS_DESCRIPTORS = os.name == "posix" and {os.open, os.mkdir, os.unlink, os.rmdir, os.stat} <= os.supports_dir_fd
"""Whether a folder can be held open, so that nobody can put another in its place while it is worked in."""


class Directory:
    """An open folder, in which every name is looked up without following a link. Close it as a context manager.

    Where the system has them it is a file descriptor. On Windows each folder on the way is checked before it is used.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Directory:
        """Open the folder that somebody named: links on the way to it are theirs.

        :raises OSError: when it is not there or is not a folder.
        """
        if HAS_DESCRIPTORS:
            return cls(path, os.open(path, os.O_RDONLY | _FOLDER | os.O_CLOEXEC))
        os.listdir(path)  # noqa: PTH208  (fails as opening a folder does)
        return cls(path, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def folder(self, name: str, *, create: bool = False) -> Directory:
        """Open a folder in this one. One that is made lets a group write that may write here.

        :raises FileNotFoundError: when it is not there and not to be made.
        :raises NotADirectoryError: when it is a symbolic link, a junction or a file.
        """
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self._descriptor)
                self._let_group_write(name)
        status = self.status(name)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path / name))
        if not is_plain_folder(status):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.path / name))
        if not HAS_DESCRIPTORS:
            return Directory(self.path / name, None)
        flags = os.O_RDONLY | _FOLDER | _NO_FOLLOW | os.O_CLOEXEC
        return Directory(self.path / name, os.open(name, flags, dir_fd=self._descriptor))

    def _let_group_write(self, name: str) -> None:
        if self._descriptor is not None:
            ours, new = os.fstat(self._descriptor), os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
            if ours.st_mode & stat.S_IWGRP and not ours.st_mode & stat.S_IWOTH and ours.st_gid == new.st_gid:
                os.chmod(name, stat.S_IMODE(new.st_mode) | stat.S_IWGRP, dir_fd=self._descriptor)

    @contextlib.contextmanager
    def within(self, folders: Sequence[str], *, create: bool = False) -> Iterator[Directory]:
        """Give the folder reached through some others; raises as :meth:`folder`."""
        with contextlib.ExitStack() as stack:
            here = self
            for name in folders:
                here = stack.enter_context(here.folder(name, create=create))
            yield here

    def names(self) -> list[str]:
        """The names in it, sorted."""
        return sorted(os.listdir(self.path if self._descriptor is None else self._descriptor))  # noqa: PTH208

    def status(self, name: str) -> os.stat_result | None:
        """What is there by a name, not through a link; ``None`` when nothing is."""
        try:
            return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link(self, name: str) -> str:
        """Where a symbolic link leads."""
        return os.readlink(self._at(name), dir_fd=self._descriptor)

    def open_file(self, name: str) -> IO[bytes]:
        """Open a regular file to read it; :raises OSError: when it is not there, or anything else than a regular file."""
        wrong = OSError(errno.EINVAL, "not a regular file", str(self.path / name))
        if not _NO_FOLLOW and (status := self.status(name)) is not None and not is_plain_file(status):
            raise wrong
        flags = os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY
        descriptor = os.open(self._at(name), flags, dir_fd=self._descriptor)
        file = os.fdopen(descriptor, "rb")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise wrong
        return file

    def create(self, name: str) -> IO[bytes]:
        """Create a file to write it, for nobody else to see until its mode is set.

        :raises FileExistsError: when something has that name, a link included.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY
        return os.fdopen(os.open(self._at(name), flags, 0o600, dir_fd=self._descriptor), "w+b")

    def create_link(self, name: str, target: str) -> None:
        """Make a symbolic link."""
        os.symlink(target, self._at(name), dir_fd=self._descriptor)

    def move(self, name: str, to: Directory, new_name: str) -> None:
        """Move a file or link to another folder of the same file system, over a file of that name if there is one."""
        places = {"src_dir_fd": self._descriptor, "dst_dir_fd": to._descriptor}
        os.replace(self._at(name), to._at(new_name), **places)  # noqa: PTH105

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> bool:
        """Remove a folder if it is empty; :returns: whether it is gone."""
        try:
            os.rmdir(self._at(name), dir_fd=self._descriptor)
        except OSError:
            return False
        return True

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, as far as that may be; a link in it is removed and not followed."""
        with contextlib.suppress(OSError):
            with self.folder(name) as folder:
                for inner in folder.names():
                    if (status := folder.status(inner)) is not None and is_plain_folder(status):
                        folder.remove_tree(inner)
                    else:
                        with contextlib.suppress(OSError):
                            folder.remove(inner)
            self.remove_folder(name)

    def sync(self) -> None:
        """Bring the names in it on to the disk, where the system can."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # some network file systems refuse
                os.fsync(self._descriptor)

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self.path, name)  # noqa: PTH118


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
        try:
            with self._parent(path) as parent:
                yield from self._walk(parent, path) if path.parts else self._inside(parent, path)
        except FileNotFoundError:
            return

    def _walk(self, parent: Directory, path: PurePosixPath) -> Iterator[tuple[str, int]]:
        status = parent.status(path.name)
        if status is not None and stat.S_ISREG(status.st_mode):
            yield path.as_posix(), status.st_size
        elif status is not None and is_plain_folder(status):
            with parent.folder(path.name) as folder:
                yield from self._inside(folder, path)
        elif status is not None:
            raise self._refused(str(path), "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file")

    def _inside(self, folder: Directory, path: PurePosixPath) -> Iterator[tuple[str, int]]:
        for name in folder.names():
            if not (name.startswith(".") or name.endswith("~") or name == "__pycache__"):
                yield from self._walk(folder, path / name)

    @contextlib.contextmanager
    def _parent(self, path: PurePosixPath) -> Iterator[Directory]:
        try:
            with Directory.open(self.root) as root, root.within(path.parts[:-1]) as parent:
                yield parent
        except NotADirectoryError as error:
            raise self._refused(str(path.parent), "or leads through, a symbolic link") from error

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        path = PurePosixPath(name)
        with self._parent(path) as parent:
            try:
                file = parent.open_file(path.name)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise self._refused(name, "no regular file that can be read") from error
            with file:
                yield file

    def _refused(self, name: str, what: str) -> UsageError:
        return UsageError(
            f"{self.root / name} is {what}: of a source only regular files are read, and no link is followed.",
            hint=f"Put what it leads to in its place, or name a copy: cp -rL {shlex.quote(str(self.root))} COPY",
        )
