"""Changing files so that a failure, or a kill, puts them back as they were."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from flashdepot.errors import UsageError
from flashdepot.system.files import disk_errors, read_json, write_json
from flashdepot.system.locks import HeldLock, try_lock_file

if TYPE_CHECKING:
    from typing_extensions import Self

_FOLDER = ".flashdepot-install"
_JOURNAL = "journal.json"
_ASIDE = "~"
"""pip renames what it removes to names that begin so, beside the old ones, until it is done."""


class Rollback:
    """Copies of what is about to change, kept in the environment until the change is proved.

    Leaving the block by an error puts everything back. A journal is written once all copies are there; whoever finds
    one on entering, because the last process was killed, puts everything back first.

    Typical usage::

        with Rollback(prefix, on_note=print) as rollback:
            rollback.protect(paths)
            change(paths)
    """

    def __init__(self, prefix: Path, on_note: Callable[[str], None]) -> None:
        self._folder = prefix / _FOLDER
        self._journal = self._folder / _JOURNAL
        self._worker = self._folder / "installer.json"
        self._on_note = on_note
        self._lock: HeldLock | None = None

    def __enter__(self) -> Self:
        """Wait for nobody: two installations into one environment are a mistake.

        :raises UsageError: when another process is changing this environment.
        :raises MissingToolError: when it cannot be written.
        """
        self._lock = try_lock_file(self._folder / "lock")
        if self._lock is None:
            raise UsageError(
                f"Another flashdepot is installing into {self._folder.parent}.", hint="Wait until it is done."
            )
        if self._journal.exists():
            self._end_worker()
            self._restore()
            self._on_note("An installation here was interrupted: the environment was put back as it had been.")
        return self

    def protect(self, paths: Iterable[Path]) -> None:
        """Copy files and folders aside; one that is not there is remembered as such, with the folders it would need.

        :raises MissingToolError: when the disk is full or may not be written; nothing has changed then.
        """
        rows: list[tuple[str, str]] = []
        with disk_errors(self._folder):
            for number, path in enumerate(paths):
                copy = self._folder / "copies" / str(number)
                if path.is_symlink() or path.exists():
                    _copy(path, copy)
                    rows.append((str(path), str(number)))
                else:
                    rows.append((str(_topmost_absent(path)), ""))
            folders = {path.parent for path in map(Path, (place for place, _ in rows))}
            aside = {str(folder): _set_aside(folder) for folder in folders}
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
        journal = read_json(self._journal)
        for folder, known in journal["aside"].items():
            for name in set(_set_aside(Path(folder))) - set(known):
                _remove(Path(folder, name))
        for place, number in journal["places"]:
            path = Path(place)
            _remove(path)
            if number:
                _copy(self._folder / "copies" / number, path)
        self._journal.unlink()
        shutil.rmtree(self._folder / "copies", ignore_errors=True)


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
    _remove(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, destination, symlinks=True)
    else:
        shutil.copy2(source, destination, follow_symlinks=False)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
