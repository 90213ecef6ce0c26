"""Changing files so that a failure, or a kill, puts them back as they were."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.system.files import disk_errors, read_json, sync_folder, write_json
from flashdepot.system.locks import HeldLock, try_lock_file

if TYPE_CHECKING:
    from typing_extensions import Self

_FOLDER = ".flashdepot-install"
_JOURNAL = "journal.json"
_ASIDE = "~"
"""pip renames what it removes to names that begin so, beside the old ones, until it is done."""


class Rollback:
    """Copies of what is about to change, kept in the environment until the change is proved.

    Leaving the block by an error puts everything back, with owners and permissions. A journal is written once all copies
    are there and on the disk; whoever finds one on entering, because the last process was killed, puts everything back
    first. Nothing outside the environment is ever touched, whatever a journal says.

    Typical usage::

        with Rollback(prefix, on_note=print) as rollback:
            rollback.protect(paths)
            change(paths)
    """

    def __init__(self, prefix: Path, on_note: Callable[[str], None]) -> None:
        self._prefix = prefix
        self._folder = prefix / _FOLDER
        self._journal = self._folder / _JOURNAL
        self._worker = self._folder / "installer.json"
        self._on_note = on_note
        self._lock: HeldLock | None = None
        self._protected: list[Path] = []

    def __enter__(self) -> Self:
        """Wait for nobody: two installations into one environment are a mistake.

        :raises UsageError: when another process is changing this environment, or its notes are another user's.
        :raises MissingToolError: when it cannot be written.
        """
        with disk_errors(self._folder), contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        self._require_own()
        self._lock = try_lock_file(self._folder / "lock")
        if self._lock is None:
            raise UsageError(f"Another flashdepot is installing into {self._prefix}.", hint="Wait until it is done.")
        if self._journal.exists():
            self._end_worker()
            self._restore()
            self._on_note("An installation here was interrupted: the environment was put back as it had been.")
        return self

    def protect(self, paths: Iterable[Path]) -> None:
        """Copy files and folders aside; one that is not there is remembered as such, with the folders it would need.

        :raises UsageError: when one lies outside the environment; nothing has changed then.
        :raises MissingToolError: when the disk is full or may not be written; likewise.
        """
        rows: list[tuple[str, str]] = []
        self._protected = [self._inside(path) for path in paths]
        with disk_errors(self._folder):
            for number, path in enumerate(self._protected):
                copy = self._folder / "copies" / str(number)
                if path.is_symlink() or path.exists():
                    _copy(path, copy)
                    rows.append((str(path), str(number)))
                else:
                    rows.append((str(_topmost_absent(path)), ""))
            folders = {path.parent for path in map(Path, (place for place, _ in rows))}
            aside = {str(folder): _set_aside(folder) for folder in folders}
            sync_folder(self._folder / "copies")
            write_json(self._journal, {"places": rows, "aside": aside})

    def working(self, process: int) -> None:
        """Remember the installer, which would go on working should this process be killed."""
        import psutil  # noqa: PLC0415

        with contextlib.suppress(psutil.NoSuchProcess):
            write_json(self._worker, {"process": process, "started": psutil.Process(process).create_time()})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._journal.exists():
                self._restore()
            elif kind is None:
                self._give_to_owner()
            self._journal.unlink(missing_ok=True)
            shutil.rmtree(self._folder, ignore_errors=True)
        finally:
            if self._lock is not None:
                self._lock.release()

    def _end_worker(self) -> None:
        """Stop the installer of a killed process, so that it does not undo what is put back."""
        import psutil  # noqa: PLC0415

        with contextlib.suppress(psutil.Error, FileNotFoundError):
            known = read_json(self._worker)
            found = psutil.Process(known["process"])
            if found.create_time() == known["started"]:
                family = [found, *found.children(recursive=True)]
                for process in family:
                    process.kill()
                psutil.wait_procs(family, timeout=10)

    def _restore(self) -> None:
        """Only reads the copies, so that it can be begun again when it is killed itself."""
        known, places = self._read_journal()
        for folder, names in known.items():
            for name in set(_set_aside(folder)) - names:
                _remove(folder / name)
        for path, copy in places:
            _remove(path)
            if copy is not None:
                _copy(copy, path)
                sync_folder(path.parent)
        self._journal.unlink()
        shutil.rmtree(self._folder / "copies", ignore_errors=True)

    def _read_journal(self) -> tuple[dict[Path, set[str]], list[tuple[Path, Path | None]]]:
        """The names that installers had set aside by folder, and the places with their copies; ``None`` without one.

        :raises IntegrityError: when it is no journal, or names something outside the environment.
        """
        hint = f"Nothing was put back. Look at what is in {self._folder}, and remove it."
        try:
            journal = read_json(self._journal)
            aside = {self._inside(Path(folder)): set(map(str, names)) for folder, names in journal["aside"].items()}
            places = [(self._inside(Path(place)), self._copy_of(str(number))) for place, number in journal["places"]]
        except (KeyError, TypeError, ValueError, AttributeError, FlashdepotError) as error:
            raise IntegrityError(
                f"{self._journal} cannot be used: {str(error).removesuffix('.')}.", hint=hint
            ) from error
        return aside, places

    def _copy_of(self, number: str) -> Path | None:
        if not number:
            return None
        if not (number.isascii() and number.isdecimal()):
            raise ValueError(f"'{number}' is not the number of a copy")
        return self._folder / "copies" / number

    def _inside(self, path: Path) -> Path:
        """The path, without ``..``; links on the way to it stay as they are.

        :raises UsageError: when it lies outside the environment.
        """
        normal = Path(os.path.normpath(path))
        root = os.path.realpath(self._prefix)
        folder = os.path.realpath(normal if normal == self._prefix else normal.parent)
        if os.path.commonpath([root, folder]) != root:
            raise UsageError(
                f"{path} lies outside the environment {self._prefix}: it could not be put back.",
                hint="Take another wheel, or remove the flash-attn that is there with the program that installed it.",
            )
        return normal

    def _require_own(self) -> None:
        """:raises UsageError: when the folder is a link or another user's, who could have put anything into it."""
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or (os.name == "posix" and status.st_uid != os.geteuid()):
            raise UsageError(
                f"{self._folder} is not a folder of yours: another user's, or a link. What it says of an interrupted "
                "installation is not believed.",
                hint="Remove it, or let its owner run 'flashdepot install' again.",
            )

    def _give_to_owner(self) -> None:
        """What root installs into another user's environment is that user's, as all else there."""
        if os.name != "posix" or os.geteuid() != 0 or (owner := self._prefix.stat()).st_uid == 0:
            return
        for path in self._protected:
            for found in _tree(path):
                if found.lstat().st_uid == 0:
                    os.chown(found, owner.st_uid, owner.st_gid, follow_symlinks=False)


def recover(prefix: Path, on_note: Callable[[str], None]) -> bool:
    """Put an environment back whose last installation was killed, and return whether one was.

    :raises UsageError: when another process is changing this environment.
    """
    was_killed = (prefix / _FOLDER / _JOURNAL).exists()
    if was_killed:
        with Rollback(prefix, on_note):
            pass
    return was_killed


def _topmost_absent(path: Path) -> Path:
    """The path itself, or the highest of its folders that is not there."""
    return _topmost_absent(path.parent) if not path.parent.exists() else path


def _set_aside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{_ASIDE}*"))


def _copy(source: Path, destination: Path) -> None:
    """Copy a file, link or folder on to the disk, with times, permissions and owner."""
    _remove(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, destination, symlinks=True)
    else:
        shutil.copy2(source, destination, follow_symlinks=False)
    for found in _tree(source):
        _finish(found, destination / found.relative_to(source))


def _finish(source: Path, copy: Path) -> None:
    status = source.lstat()
    if os.name == "posix" and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):  # only root can give files away
            os.chown(copy, status.st_uid, status.st_gid, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                copy.chmod(stat.S_IMODE(status.st_mode))  # a new owner takes setuid and setgid away
    if stat.S_ISREG(status.st_mode):
        with copy.open("rb") as file:
            os.fsync(file.fileno())
    elif stat.S_ISDIR(status.st_mode):
        sync_folder(copy)


def _tree(path: Path) -> Iterator[Path]:
    """A file, link or folder, and all that is in it; nothing when it is not there."""
    if path.is_symlink() or path.exists():
        yield path
    if path.is_dir() and not path.is_symlink():
        for folder, folders, files in os.walk(path):
            yield from (Path(folder, name) for name in (*folders, *files))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
