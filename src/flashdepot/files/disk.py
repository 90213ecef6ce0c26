"""Files on a disk: their SHA-256, atomic writes, and what its errors mean."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import IO, BinaryIO

from flashdepot.errors import FlashdepotError, MissingToolError

_CHUNK = 1 << 20
_DEVICES = Path("/dev")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; :raises OSError: for what is not a regular file and might never end."""

    def without_waiting(name: str, flags: int) -> int:  # for anyone who writes to a pipe
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    with open(path, "rb", buffering=0, opener=without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return sha256_of(file)


def sha256_of(file: IO[bytes] | FileIO) -> str:
    """SHA-256 of the rest of an open file."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def copy_hashed(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy the rest of an open file; :returns: the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


def write_all(file: FileIO, data: bytes) -> None:
    """Write to an unbuffered file, which takes only a part where the disk becomes full, and says so the next time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def text_of(path: Path) -> str:
    """The text of a file; empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


ANOTHER_DEPOT = "--depot DIR, or FLASHDEPOT_HOME"
"""How a user names another depot."""


@contextlib.contextmanager
def disk_errors(folder: Path, elsewhere: str = ANOTHER_DEPOT) -> Iterator[None]:
    """Turn errors of a disk into what to do about them; :raises MissingToolError: for those.

    :param elsewhere: how the user names another folder; empty where there is no way.
    """
    try:
        yield
    except OSError as error:
        if (explained := explain_disk_error(error, folder, elsewhere)) is None:
            raise
        raise explained from error


_IN_USE = 32
"""ERROR_SHARING_VIOLATION of Windows."""

_DISK_ERRORS: tuple[tuple[set[str], str, str], ...] = (
    ({"EROFS"}, "written", "Mount it for writing"),
    ({"EACCES", "EPERM"}, "read or written", "Make it yours to write"),
    ({"EIO", "ESTALE", "EUCLEAN"}, "read or written", "See what the system's log says about it ('dmesg')"),
    ({"EFBIG"}, "written", "See the limits of this shell ('ulimit -f') and of the file system"),
    ({"EMFILE", "ENFILE"}, "opened", "Raise the limit of this shell ('ulimit -n 1024')"),
    ({"ELOOP"}, "opened", "Remove the symbolic link that leads there"),
    ({"ENAMETOOLONG"}, "used", "Name a shorter path"),
    ({"ENOSYS", "ENOTSUP", "EOPNOTSUPP"}, "used", "Use a folder on another file system"),
)
"""Names of errors, what cannot be done then, and what helps where it is."""


def explain_disk_error(error: OSError, folder: Path | None, elsewhere: str = "") -> FlashdepotError | None:
    """The error in plain words, ``None`` when it is not one of the disk; ``folder``: what was worked in, where known.

    :param elsewhere: as for :func:`disk_errors`.
    """
    another = f", or name another folder: {elsewhere}" if elsewhere else "."
    name = errno.errorcode.get(error.errno or 0, "")
    if getattr(error, "winerror", 0) == _IN_USE:
        return MissingToolError(
            f"{error.filename or folder} is open in another program.",
            hint="End that program, and run the same command again.",
        )
    if name in {"ENOSPC", "EDQUOT"}:
        full, used_up = ("The disk", "is full") if name == "ENOSPC" else ("Your quota on the disk", "is used up")
        return MissingToolError(
            f"{full} that holds {folder or error.filename or 'what is written'} {used_up}.",
            hint=f"Free space there ('flashdepot depot gc' shows what a depot would free){another}",
        )
    for names, done, fix in _DISK_ERRORS:
        if name in names:
            named = error.filename2 or error.filename  # what was to be there, and not where it is from
            unfinished = str(named or "").endswith(".tmp")
            inside = folder if name in {"ENOTSUP", "EOPNOTSUPP"} else None  # it is so everywhere in it
            place = folder or Path(named).parent if unfinished else inside or named or folder or "A file"
            return MissingToolError(f"{place} cannot be {done}: {error.strerror}.", hint=f"{fix}{another}")
    return None


@contextlib.contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Give a folder for temporary files, removed at the end; :raises MissingToolError: when its disk is full."""
    import tempfile  # noqa: PLC0415  (a depot hit needs none)

    try:
        with tempfile.TemporaryDirectory(prefix=f"flashdepot-{purpose}-") as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        another = "set TMP=DIR" if os.name == "nt" else "export TMPDIR=DIR"
        raise MissingToolError(
            f"The disk that holds temporary files, {tempfile.gettempdir()}, is full.",
            hint=f"Free space there, or name another folder: {another}",
        ) from error


def hidden_sibling(path: Path) -> Path:
    """A name next to ``path`` that nobody else uses. If a kill leaves it behind, gc removes it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


@contextlib.contextmanager
def atomic_file(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Give a temporary file next to ``path`` that takes its place, whole and on disk, if the block ends well."""
    if not path.name:  # the empty path is the current folder
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = hidden_sibling(path)
    try:
        yield temporary
        with temporary.open("r+b") as file:  # Windows flushes only what is open for writing
            os.fsync(file.fileno())
        set_mode(temporary, mode)
        _replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong before is said
            temporary.unlink()
        raise


def _replace(temporary: Path, path: Path) -> None:
    """Rename it. On Windows that fails while another process reads what is there, or renames its own."""
    for pause in (0.01, 0.03, 0.1, 0.3):
        try:
            temporary.replace(path)
        except PermissionError:  # noqa: PERF203  (it is tried again)
            if os.name != "nt":
                raise
            time.sleep(pause)
        else:
            return
    temporary.replace(path)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they are there, which nobody but their owner may write into."""
    if not path.is_dir():
        if not path.parent.exists() and path.parent != path:  # a drive that is not there
            make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o755)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder on to the disk, where the system can."""
    if os.name == "posix":
        with contextlib.suppress(OSError):  # some network file systems refuse
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def open_fresh(path: Path) -> BinaryIO:
    """Open a new file to write, in place of what has that name: a link there is removed and not followed."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def protect(path: Path) -> None:
    """Take the right to write a file from everybody: hard links share its bytes. Windows deletes no read-only file."""
    if os.name != "nt":
        set_mode(path, 0o444)


_LACKING = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems say of what they cannot do: FAT, exFAT, some shares."""
_NO_PRIVILEGE = 1314
"""ERROR_PRIVILEGE_NOT_HELD of Windows, where only administrators and developers make symbolic links."""


def set_mode(file: Path | int, mode: int) -> None:
    """Set the permissions of a file that was made here, by its path or open; a file system that keeps none is left at that."""
    try:
        os.chmod(file, mode)  # noqa: PTH101  (an open file has no path)
    except OSError as error:
        if error.errno not in _LACKING:
            raise


def make_link(path: Path, target: str) -> None:
    """Make a symbolic link; :raises OSError: as EOPNOTSUPP, where the file system has none.

    :raises MissingToolError: where Windows lets this user make none.
    """
    try:
        path.symlink_to(target)
    except OSError as error:
        if getattr(error, "winerror", None) != _NO_PRIVILEGE:
            if error.errno not in _LACKING:
                raise
            raise OSError(errno.EOPNOTSUPP, "its file system has no symbolic links", str(path)) from error
    if not path.is_symlink():  # wine makes none, and says that it did
        raise MissingToolError(
            "Windows lets this user make no symbolic links, and a library for Linux has some.",
            hint="Turn on Developer Mode in Windows's settings, or take a library for Windows: --target windows-x86_64",
        )


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that no reader and no crash ever sees a part of it."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


def write_named(path: Path, data: bytes, option: str) -> None:
    """Write to the place that a user named: a device or a pipe gets the bytes, anything else is replaced whole.

    :param option: how it is named, ``--save FILE``.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    with disk_errors(path.parent, option):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and path.parent != _DEVICES):
            write_atomic(path, data)
        else:
            with path.open("wb") as file:
                file.write(data)
