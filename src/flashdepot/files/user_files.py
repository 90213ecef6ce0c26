"""Single files in a folder that the user named: never through a link, and nothing of somebody else's is lost."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.directory import create_plain, is_plain_folder, open_plain, plain_path, status_of
from flashdepot.files.disk import atomic_file, copy_hashed, disk_errors, make_link, set_mode, sha256_of, sync_folder

Written = Mapping[str, frozenset[str]]
"""What flashdepot wrote by place: the identities that a file there may have (see :attr:`OutputFile.identity`)."""

_DEVICES = frozenset({"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))})
"""Names that Windows takes for devices, whatever suffix they have (Microsoft, "Naming Files, Paths, and Namespaces")."""


class OutputFile(msgspec.Struct, frozen=True):
    """One file to write.

    :param place: where, with ``/``.
    :param digest: SHA-256 of its bytes.
    :param content: the bytes, or how to find the file that has them; they are verified while they are copied.
    :param link: where it links to; it has no bytes then.
    """

    place: str
    digest: str = ""
    content: bytes | Callable[[], Path] = b""
    link: str = ""

    @classmethod
    def of(cls, place: str, data: bytes) -> OutputFile:
        """A file with these bytes."""
        return cls(place, hashlib.sha256(data).hexdigest(), data)

    @property
    def identity(self) -> str:
        """What tells whether something else is the same: the digest, or for a link where it leads."""
        return f"-> {self.link}" if self.link else self.digest

    @property
    def identities(self) -> frozenset[str]:
        """What it may be when it is there already. Where there are no links, git writes their target as a text."""
        as_text = [hashlib.sha256(self.link.encode()).hexdigest()] if self.link else []
        return frozenset([self.identity, *as_text])

    def put(self, top: Path) -> None:
        """Create it at its place below a folder, whole and on disk; :raises IntegrityError: when its bytes are others."""
        path = plain_path(top, self.place, create=True)
        if self.link:
            make_link(path, self.link)
            return
        with create_plain(path) as target:
            if (actual := _copy(self.content, target)) != self.digest:
                raise IntegrityError(
                    f"The bytes for {self.place} are damaged: expected SHA-256 {self.digest}, found {actual}.",
                    hint="Get the library again: flashdepot get",
                )
            finish(target)


def is_device(name: str) -> bool:
    """Whether Windows takes a name for a device, with any ending: nobody there can have such a file or folder."""
    return name.partition(".")[0].rstrip().upper() in _DEVICES


def require_safe(place: str) -> None:
    """:raises IntegrityError: for a place outside a folder, or one that git, Windows or a terminal takes for something else."""
    for part in place.split("/"):
        wrong = (
            part in {"", ".", ".."}
            or part[-1] in ". "
            or any(character in '\\:*?"<>|\x7f' or character < " " for character in part)
            or part.casefold() in {".git", "git~1"}
            or is_device(part)
        )
        if wrong:
            raise IntegrityError(
                f"{place!r} is not a name for a file of a library: nothing is written there.",
                hint="Get the library again: flashdepot get",
            )


def identity_of(top: Path, place: str) -> str | None:
    """The :attr:`OutputFile.identity` of what is at a place: empty for neither file nor link, ``None`` for nothing."""
    try:
        path = plain_path(top, place)
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"-> {path.readlink()}"
    if not stat.S_ISREG(status.st_mode):
        return ""
    with open_plain(path) as file:
        return sha256_of(file)


def finish(file: IO[bytes]) -> None:
    """Bring a file that was written on to the disk; everybody may read it."""
    file.flush()
    if os.name != "nt":
        set_mode(file.fileno(), 0o644)
    os.fsync(file.fileno())


def _copy(content: bytes | Callable[[], Path], target: IO[bytes]) -> str:
    """Write bytes, and return their SHA-256. A source that is a symbolic link is not followed."""
    if isinstance(content, bytes):
        target.write(content)
        return hashlib.sha256(content).hexdigest()
    with open_plain(content()) as source:
        return copy_hashed(source, target)


def rewrite_file(chosen: Path, name: str, change: Callable[[bytes], bytes], elsewhere: str) -> bool:
    """Change a file of the user's, and return whether its bytes changed; :raises UsageError: for another kind of file.

    :param change: from the bytes there are, none for a file that is not there, to those that there should be.
    """
    with folder_errors(chosen, elsewhere):
        mode, old = 0o644, b""
        if (status := status_of(chosen / name)) is not None:
            _require_regular(chosen / name, status, elsewhere)
            mode, old = stat.S_IMODE(status.st_mode), read_regular(chosen / name)
        new = change(old)
        if new == old:
            return False
        with atomic_file(chosen / name, mode) as temporary, create_plain(temporary) as file:
            file.write(new)
        sync_folder(chosen)
        return True


def read_regular(path: Path) -> bytes:
    """Read a file that is to be handed on; :raises OSError: when it is not there, or is a link or anything but a file."""
    with open_plain(path) as file:
        return file.read()


def require_no_links(chosen: Path, names: Sequence[str], elsewhere: str) -> None:
    """:raises UsageError: when one of some names in a folder is a symbolic link, or neither a file nor a folder."""
    with folder_errors(chosen, elsewhere):
        for path in (chosen / name for name in names):
            status = status_of(path)
            if status is not None and not is_plain_folder(status):
                _require_regular(path, status, elsewhere)


@contextlib.contextmanager
def new_file(chosen: Path, name: str, elsewhere: str) -> Iterator[IO[bytes]]:
    """Give a file to write that takes its name in a folder, whole and on disk; :raises UsageError: when others have it."""
    require_safe(name)
    with folder_errors(chosen, elsewhere):
        chosen.mkdir(parents=True, exist_ok=True)
        with atomic_file(chosen / name) as temporary, create_plain(temporary) as file:
            yield file
            if (status := status_of(chosen / name)) is not None:
                _require_regular(chosen / name, status, elsewhere)
                file.flush()
                file.seek(0)
                if sha256_of(file) != identity_of(chosen, name):
                    raise UsageError(
                        f"{chosen / name} exists already with other contents, and is not replaced.",
                        hint=f"Move it away and run the same command again, or name another folder: {elsewhere}",
                    )
        sync_folder(chosen)


def require_folder(folder: Path, elsewhere: str) -> None:
    """Before long work: raise what :func:`folder_errors` does of a folder that cannot be made or written; nothing is made."""
    with folder_errors(folder, elsewhere):
        path = Path(os.path.abspath(folder))  # noqa: PTH100  (links stay as they were typed)
        nearest = next((place for place in (path, *path.parents) if os.path.lexists(place)), None)
        made = Path(folder).parts if nearest is None else path.relative_to(nearest).parts
        if device := next(filter(is_device, made), ""):
            raise UsageError(
                f"'{device}' is a device of Windows, and no folder.", hint=f"Name another folder: {elsewhere}"
            )
        if nearest is None:  # on Windows, where drives and shares come and go
            why = f"{path} is nowhere: there is no {path.anchor}"
            raise UsageError(why, hint=f"Name another folder: {elsewhere}")
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))


@contextlib.contextmanager
def folder_errors(folder: Path, elsewhere: str) -> Iterator[None]:
    """Turn errors of a folder that the user named into what to do: of a path that none can have, of a disk that is full.

    :param elsewhere: how the person at the keyboard names another folder, here and in the functions above.
    """
    try:
        with disk_errors(folder, elsewhere):
            yield
    except (FileExistsError, NotADirectoryError) as error:
        named = path if (path := Path(error.filename or "")).is_absolute() else folder
        raise UsageError(
            f"{named} is {'a symbolic link' if named.is_symlink() else 'a file'}, where a folder was expected.",
            hint=f"Name a new or an empty folder: {elsewhere}",
        ) from error


def _require_regular(path: Path, status: os.stat_result, elsewhere: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise UsageError(
            f"{path} is {what}: it is neither followed nor replaced.",
            hint=f"Put a regular file there, remove it, or name another folder: {elsewhere}",
        )
