"""Changing an environment's files: staged next to them, swapped by renames, and swapped back unless all goes well."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.files.disk import disk_errors, sync_folder
from flashdepot.files.documents import read_json, write_json
from flashdepot.files.locks import HeldLock, try_lock_file

if TYPE_CHECKING:
    from typing_extensions import Self

_FOLDER = ".flashdepot-install"
_JOURNAL = "journal.json"


class EnvironmentChange:
    """A change of an environment, in two steps: installers write into ``staged``, and ``swap`` puts that into place.

    ``staged`` stands for the environment's prefix: until ``swap`` the environment itself is not touched. What ``swap``
    replaces is moved aside, after a journal of it is on the disk. Leaving the block by an error moves everything
    back; so does anyone who next finds the journal, because the process was killed. Nothing outside the environment is
    touched, whatever a journal says.

    Typical usage::

        with EnvironmentChange(prefix, on_note=print) as change:
            install_into(change.staged)
            change.swap(files_of_the_old_version)
            verify()
    """

    def __init__(self, prefix: Path, on_note: Callable[[str], None]) -> None:
        self._prefix = Path(os.path.realpath(prefix))
        self._folder = self._prefix / _FOLDER
        self._journal = self._folder / _JOURNAL
        self._aside = self._folder / "old"
        self.staged = self._folder / "new"
        self._on_note = on_note
        self._lock: HeldLock | None = None

    def __enter__(self) -> Self:
        """Take the environment at once, or not at all: two installations into one are a mistake."""
        with disk_errors(self._folder, "--python PY"), contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        self._require_own()
        self._lock = try_lock_file(self._folder / "lock", elsewhere="--python PY")
        if self._lock is None:
            raise UsageError(f"Another flashdepot is installing into {self._prefix}.", hint="Wait until it is done.")
        try:
            if self._journal.exists():
                self._undo()
                self._on_note("An installation here was interrupted: the environment was put back as it had been.")
            with disk_errors(self._folder, "--python PY"):
                for folder in (self.staged, self._aside):
                    _remove(folder)  # of a process that was killed before it had a journal
                    folder.mkdir()
        except BaseException:
            self._leave()
            raise
        return self

    def added(self) -> list[Path]:
        """The files that were staged, as they will be named in the environment."""
        return [self._real(path) for path in _tree(self.staged) if path.is_symlink() or not path.is_dir()]

    def in_the_way(self, replaced: Iterable[Path]) -> list[Path]:
        """What the environment has in the places of staged files and will not be replaced."""
        leaving = {os.path.normcase(self._inside(path)) for path in replaced}
        there = [path for path in self.added() if _is_there(path)]
        return [path for path in there if os.path.normcase(self._inside(path)) not in leaving]

    def swap(self, replaced: Iterable[Path]) -> None:
        """Move files of the environment aside, all that are :meth:`in_the_way` among them, and what is staged into place."""
        old = sorted(self._topmost_old({path for path in map(self._inside, replaced) if _is_there(path)}))
        new = {self._inside(self._real(path)): path for path in self._topmost_new(self.staged)}
        with disk_errors(self._folder, "--python PY"):
            self._give_to_owner()
            write_json(self._journal, {"replaced": [*map(str, old)], "added": [*map(str, new)]})
            for number, path in enumerate(old):
                self._move(path, self._aside / str(number))
            for path, staged in new.items():
                self._move(staged, path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._journal.exists():
                self._undo()
            elif kind is None:
                self._journal.unlink(missing_ok=True)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Remove the folder, unless it has what is still to be put back, and let others have the environment."""
        if not self._journal.exists():
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()
        if os.name == "nt":  # where no file is removed that is open, such as a lock that is held
            with contextlib.suppress(OSError):
                (self._folder / "lock").unlink()
                self._folder.rmdir()

    def _topmost_new(self, folder: Path) -> Iterator[Path]:
        """The topmost of what is staged that the environment has no folder for: each is moved as a whole."""
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink() and self._real(path).is_dir():
                yield from self._topmost_new(path)
            else:
                yield path

    def _topmost_old(self, paths: set[Path]) -> set[Path]:
        """The topmost folders that are replaced as a whole, and the files next to them."""
        folders = {path.parent for path in paths}
        shared = {self._prefix, *map(self._inside, (self._real(path) for path in _tree(self.staged)))}
        whole = {folder for folder in folders - shared if paths.issuperset(folder.iterdir())}
        kept = {path for path in paths if path.parent not in whole} | whole
        return self._topmost_old(kept) if whole else kept

    def _real(self, staged: Path) -> Path:
        return self._prefix / staged.relative_to(self.staged)

    def _undo(self) -> None:
        replaced, added = self._read_journal()
        for path in added:
            if path not in replaced or _is_there(replaced[path]):
                _remove(path)
        for path, kept in replaced.items():
            if _is_there(kept):
                _remove(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._move(kept, path)
                sync_folder(path.parent)
        self._journal.unlink()

    def _move(self, path: Path, place: Path) -> None:
        """Rename it. Where only a copy can be moved, as a folder of a container's image, what is kept aside is whole or not there.

        shutil.move would also copy what cannot be renamed because a program has it open, as on Windows.
        """
        try:
            path.rename(place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            between, keeps = self._folder / "between", place.parent == self._aside
            _remove(between)
            _copy(path, between if keeps else place)
            (between if keeps else path).rename(place if keeps else between)
            _remove(path if keeps else between)

    def _read_journal(self) -> tuple[dict[Path, Path], list[Path]]:
        """What was replaced, with the place where it is kept, and what was added."""
        hint = f"Nothing was put back. Look at what is in {self._folder}, and remove it."
        try:
            journal = read_json(self._journal)
            replaced = {self._inside(Path(p)): self._aside / str(n) for n, p in enumerate(journal["replaced"])}
            added = [self._inside(Path(place)) for place in journal["added"]]
        except (KeyError, TypeError, ValueError, AttributeError, FlashdepotError) as error:
            raise IntegrityError(
                f"{self._journal} cannot be used: {str(error).removesuffix('.')}.", hint=hint
            ) from error
        return replaced, added

    def _inside(self, path: Path) -> Path:
        """The path, with neither ``..`` nor links on the way to it."""
        normal = Path(os.path.normpath(path))
        folder = Path(os.path.realpath(normal.parent))
        if self._prefix not in {folder, *folder.parents}:
            raise UsageError(
                f"{path} is outside the environment {self._prefix}: it could not be put back.",
                hint="Take another wheel, or remove the flash-attn that is there with the program that installed it.",
            )
        return Path(folder, normal.name)

    def _require_own(self) -> None:
        """:raises UsageError: when the folder is a link or another user's, who could have put anything into it."""
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or (os.name == "posix" and status.st_uid != os.geteuid()):
            raise UsageError(
                f"{self._folder} is not your folder: another user's, or a link. What it says of an interrupted "
                "installation is not trusted.",
                hint="Remove it, or let its owner run 'flashdepot install' again.",
            )

    def _give_to_owner(self) -> None:
        """What root installs into another user's environment is that user's, as all else there."""
        if os.name != "posix" or os.geteuid() != 0 or (owner := self._prefix.stat()).st_uid == 0:
            return
        for path in _tree(self.staged):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def recover(prefix: Path, on_note: Callable[[str], None]) -> bool:
    """Put an environment back whose last installation was killed, and return whether one was."""
    was_killed = (prefix / _FOLDER / _JOURNAL).exists()
    if (prefix / _FOLDER).exists():
        with EnvironmentChange(prefix, on_note):
            pass
    return was_killed


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _tree(folder: Path) -> Iterator[Path]:
    for top, folders, files in os.walk(folder):
        yield from (Path(top, name) for name in (*folders, *files))


def _copy(path: Path, place: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, place, symlinks=True)
    else:
        shutil.copy2(path, place, follow_symlinks=False)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
