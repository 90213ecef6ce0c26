"""Folders in which names are looked up without following a symbolic link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a named pipe in the place of a file must not block the program
_BINARY = getattr(os, "O_BINARY", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_REPARSE_POINT = 0x400  # FILE_ATTRIBUTE_REPARSE_POINT: symbolic links and junctions (Windows SDK, winnt.h)

HAS_DESCRIPTORS = os.name == "posix" and {os.open, os.mkdir, os.unlink, os.rmdir, os.stat} <= os.supports_dir_fd
"""Whether a folder can be held open, so that nobody can put another in its place while it is worked in."""


class Directory:
    """An open folder.

    Where the system has them it is a file descriptor, and every name is looked up relative to it. On Windows each folder
    on the way is looked at before it is used.

    Typical usage::

        with Directory.open(chosen) as top, top.folder("include") as include:
            include.status("flash_attention.h")
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Directory:
        """Open the folder that somebody named: links on the way to it are theirs.

        :raises OSError: when it is not there or is no folder.
        """
        if HAS_DESCRIPTORS:
            return cls(path, os.open(path, os.O_RDONLY | _FOLDER | os.O_CLOEXEC))
        os.listdir(path)  # noqa: PTH208  (fails as opening a folder does)
        return cls(path, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it. Closing twice does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def folder(self, name: str, *, create: bool = False) -> Directory:
        """Open a folder in this one.

        :raises FileNotFoundError: when it is not there and not to be made.
        :raises NotADirectoryError: when it is a symbolic link, a junction or a file.
        """
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self._descriptor)
        status = self.status(name)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path / name))
        if not is_plain_folder(status):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.path / name))
        if not HAS_DESCRIPTORS:
            return Directory(self.path / name, None)
        flags = os.O_RDONLY | _FOLDER | _NO_FOLLOW | os.O_CLOEXEC
        return Directory(self.path / name, os.open(name, flags, dir_fd=self._descriptor))

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
        """Open a regular file to read it.

        :raises OSError: when it is not there, or anything else than a regular file.
        """
        if not _NO_FOLLOW:
            self._require_file(name)
        flags = os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY
        descriptor = os.open(self._at(name), flags, dir_fd=self._descriptor)
        file = os.fdopen(descriptor, "rb")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise self._no_file(name)
        return file

    def _require_file(self, name: str) -> None:
        """Where a link cannot be refused while it is opened, look first."""
        status = self.status(name)
        if status is not None and not is_plain_file(status):
            raise self._no_file(name)

    def _no_file(self, name: str) -> OSError:
        return OSError(errno.EINVAL, "not a regular file", str(self.path / name))

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
                    status = folder.status(inner)
                    if status is not None and is_plain_folder(status):
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
    return stat.S_ISDIR(status.st_mode) and not _is_reparse_point(status)


def is_plain_file(status: os.stat_result) -> bool:
    """Whether a status that was not taken through a link is of a regular file."""
    return stat.S_ISREG(status.st_mode) and not _is_reparse_point(status)


def _is_reparse_point(status: os.stat_result) -> bool:
    return bool(getattr(status, "st_file_attributes", 0) & _REPARSE_POINT)
