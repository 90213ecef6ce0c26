"""Locks between processes. The system frees them when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, final

from flashdepot.errors import MissingToolError
from flashdepot.system.files import disk_errors

if TYPE_CHECKING:
    from filelock import BaseFileLock

_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


@final
class HeldLock:
    """A lock that this process holds until it releases it or ends. As a context manager it releases at the end."""

    def __init__(self, held: BaseFileLock, descriptor: int) -> None:
        self._held = held
        self._lent = descriptor
        self._own: int | None = None

    def fileno(self) -> int:
        """The open file that holds it. On POSIX a program that inherits it holds the lock as long as it runs."""
        if self._own is None:
            self._own = os.dup(self._lent)  # filelock closes its own in every process that is forked
        return self._own

    def release(self) -> None:
        """Let others have it. Releasing twice does no harm."""
        self._held.release()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@contextlib.contextmanager
def lock_file(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[HeldLock]:
    """Hold a lock file, waiting for it as long as it takes.

    :param on_wait: called once if somebody else has it.
    :raises MissingToolError: as :func:`try_lock_file`.
    """
    held = try_lock_file(path)
    if held is None:
        if on_wait is not None:
            on_wait()
        held = _acquire(path, blocking=True)
    with held:
        yield held


def try_lock_file(path: Path) -> HeldLock | None:
    """Hold a lock file, or return ``None`` at once when somebody has it, this process included.

    :raises MissingToolError: when the file system cannot be written or has no locks.
    """
    from filelock import Timeout  # noqa: PLC0415  (80 ms that a depot hit does not need)

    try:
        return _acquire(path, blocking=False)
    except Timeout:
        return None


def _acquire(path: Path, *, blocking: bool) -> HeldLock:
    from filelock import FileLock  # noqa: PLC0415  (as above)

    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptors: list[int] = []
        # A soft lock, what filelock would fall back to, outlives a killed process.
        held = FileLock(
            path, mode=_mode(path.parent), thread_local=False, fallback_to_soft=False, on_acquired=descriptors.append
        )
        try:
            held.acquire(blocking=blocking)
        except NotImplementedError as error:
            raise _no_locks(path) from error
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise _no_locks(path) from error
            raise
    return HeldLock(held, descriptors[-1])


def _mode(folder: Path) -> int:
    """The mode of a new lock file: whoever may add files to its folder must be able to hold it."""
    return 0o664 if folder.stat().st_mode & stat.S_IWGRP else 0o644


def _no_locks(path: Path) -> MissingToolError:
    return MissingToolError(
        f"The file system of {path.parent} has no file locks, which keep two processes from doing the same work.",
        hint="Use a depot on a local disk: --depot DIR, or set FLASHDEPOT_HOME.",
    )
