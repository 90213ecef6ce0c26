"""Single files in a folder that the user named: never through a link, and nothing of somebody else's is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from flashdepot.errors import UsageError
from flashdepot.system.directory import Directory, is_plain_folder
from flashdepot.system.files import explain_disk_error
from flashdepot.system.output_file import finish, identity_of, require_safe, sha256_of


def rewrite_file(chosen: Path, name: str, change: Callable[[bytes], bytes], elsewhere: str) -> bool:
    """Change a file of the user's, and return whether its bytes changed.

    :param change: from the bytes there are, none for a file that is not there, to those that there should be.
    :param elsewhere: how the person at the keyboard names another folder.
    :raises UsageError: when it is a link or anything else than a regular file; nothing has changed then.
    """
    with folder_errors(chosen, elsewhere), Directory.open(chosen) as folder:
        mode, old = 0o644, b""
        if (status := folder.status(name)) is not None:
            _require_regular(chosen / name, status, elsewhere)
            mode = stat.S_IMODE(status.st_mode)
            with folder.open_file(name) as file:
                old = file.read()
        new = change(old)
        if new == old:
            return False
        with _beside(folder, name, mode) as file:
            file.write(new)
        return True


def read_regular(path: Path) -> bytes:
    """Read a file that is to be handed on.

    :raises OSError: when it is not there, is a symbolic link or no file: what is behind a link is not ours to copy.
    """
    with Directory.open(path.parent) as folder, folder.open_file(path.name) as file:
        return file.read()


def require_no_links(chosen: Path, names: Sequence[str], elsewhere: str) -> None:
    """Check names in a folder before anything is read or written there.

    :raises UsageError: when one of them is a symbolic link, or neither a file nor a folder.
    """
    with contextlib.suppress(FileNotFoundError), folder_errors(chosen, elsewhere), Directory.open(chosen) as folder:
        for name in names:
            status = folder.status(name)
            if status is not None and not is_plain_folder(status):
                _require_regular(chosen / name, status, elsewhere)


@contextlib.contextmanager
def new_file(chosen: Path, name: str, elsewhere: str) -> Iterator[IO[bytes]]:
    """Give a file to write that takes its name in a folder, whole and on disk, when the block ends well.

    A file of that name with the same bytes may be there already.

    :param elsewhere: how the person at the keyboard names another folder.
    :raises UsageError: when something else has that name; it stays.
    """
    require_safe(name)
    with folder_errors(chosen, elsewhere):
        chosen.mkdir(parents=True, exist_ok=True)
        with Directory.open(chosen) as folder, _beside(folder, name, 0o644) as file:
            yield file
            if (status := folder.status(name)) is None:
                return
            _require_regular(chosen / name, status, elsewhere)
            file.flush()
            file.seek(0)
            if sha256_of(file) != identity_of(folder, name, status):
                raise UsageError(
                    f"{chosen / name} is there already, with other bytes. It is not replaced.",
                    hint=f"Move it away and run the same command again, or name another folder: {elsewhere}",
                )


def require_folder(folder: Path, elsewhere: str) -> None:
    """Before long work: look whether a folder is there or can be made, and may be written. Nothing is made.

    :param elsewhere: how the person at the keyboard names another folder.
    :raises UsageError: when a part of its path is a file.
    :raises MissingToolError: when it may not be written.
    """
    with folder_errors(folder, elsewhere):
        path = Path(os.path.abspath(folder))  # noqa: PTH100  (links stay as they were typed)
        nearest = next(place for place in (path, *path.parents) if os.path.lexists(place))
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))


@contextlib.contextmanager
def folder_errors(folder: Path, elsewhere: str) -> Iterator[None]:
    """Turn errors of a folder that the user named into what to do about them.

    :raises UsageError: for a path that no folder can have.
    :raises MissingToolError: for a disk that is full, broken or may not be written.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        named = error.filename if isinstance(error.filename, str) and os.path.isabs(error.filename) else folder  # noqa: PTH117
        raise UsageError(
            f"{named} is a file, or a link that leads to no folder; a folder was expected there.",
            hint=f"Name a new or an empty folder: {elsewhere}",
        ) from error
    except OSError as error:
        if (explained := explain_disk_error(error, folder)) is None:
            raise
        explained.hint = f"Free space there, or name another folder: {elsewhere}"
        raise explained from error


def _require_regular(path: Path, status: os.stat_result, elsewhere: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise UsageError(
            f"{path} is {what}: flashdepot neither reads what is behind it nor replaces it.",
            hint=f"Put a regular file there, remove it, or name another folder: {elsewhere}",
        )


@contextlib.contextmanager
def _beside(folder: Directory, name: str, mode: int) -> Iterator[IO[bytes]]:
    """Give a new file that takes its name when the block ends well; nothing is left behind when it does not."""
    temporary = f".{name}.{os.urandom(4).hex()}.tmp"
    try:
        with folder.create(temporary) as file:
            yield file
            finish(file, mode)
        folder.move(temporary, folder, name)
        folder.sync()
    finally:
        folder.remove(temporary)
