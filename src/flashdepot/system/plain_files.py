"""Reading a folder that nobody vouches for: regular files only, through no link, and no more of them than there may be."""

from __future__ import annotations

import hashlib
import io
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from flashdepot.errors import UsageError
from flashdepot.system.directory import Directory, is_plain_folder

_CHUNK = 1 << 20
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
        digest, left = hashlib.sha256(), _BYTES
        with self._opened(name) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if (left := left - len(chunk)) < 0:
                    raise self._refused(name, f"larger than {_BYTES >> 30} GiB")
        return digest.hexdigest()

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

    @contextmanager
    def _parent(self, path: PurePosixPath) -> Iterator[Directory]:
        try:
            with Directory.open(self.root) as root, root.within(path.parts[:-1]) as parent:
                yield parent
        except NotADirectoryError as error:
            raise self._refused(str(path.parent), "or leads through, a symbolic link") from error

    @contextmanager
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
