"""Locks between processes. The system frees them when their holder ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from flashdepot.errors import MissingToolError
from flashdepot.files.disk import ANOTHER_DEPOT, disk_errors

_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@final
class HeldLock:
    """A lock that this process holds until it releases it or ends. As a context manager it releases at the end."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor: int | None = descriptor
        self._path = path

    def fileno(self) -> int:
        """The open file that holds it. On POSIX a program that inherits it holds the lock as long as it runs."""
        if self._descriptor is None:
            raise ValueError("the lock has been released")
        return self._descriptor

    def release(self) -> None:
        """Let others have it. Releasing twice does no harm."""
        from filelock import unlock_descriptor  # noqa: PLC0415  (as below)

        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):  # closing it is enough, unless a program has inherited it
                unlock_descriptor(descriptor)
            os.close(descriptor)

    def discard(self) -> None:
        """Release it and remove its file. Windows removes no file that is open: there who has it next removes it."""
        if os.name == "nt":
            self.release()
            with contextlib.suppress(OSError):
                self._path.unlink()
        else:  # before others have it, so that two do not hold two files of one name
            with contextlib.suppress(OSError):  # a file that stays, as on a failing file server, loses nobody's work
                self._path.unlink()
            self.release()

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def lock_file(
    path: Path, on_wait: Callable[[], None] | None = None, elsewhere: str = ANOTHER_DEPOT
) -> Iterator[HeldLock]:
    """Hold a lock file, waiting for it as long as it takes; ``on_wait`` is called once if somebody else has it."""
    held = try_lock_file(path, elsewhere=elsewhere)
    if held is None:
        if on_wait is not None:
            on_wait()
        while held is None:
            held = try_lock_file(path, blocking=True, elsewhere=elsewhere)
    with held:
        yield held


def try_lock_file(path: Path, *, blocking: bool = False, elsewhere: str = ANOTHER_DEPOT) -> HeldLock | None:
    """Hold a lock file; ``None`` when somebody has it, this process included: at once, unless it is ``blocking``.

    :param elsewhere: how the user names another folder, where it cannot be locked in this one.
    """
    # Opened here, not by filelock's FileLock, which gives no descriptor for a child to inherit.
    from filelock import lock_descriptor  # noqa: PLC0415  (80 ms that a depot hit does not need)

    with disk_errors(path.parent, elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                descriptor = os.open(path, _OPEN, 0o644)
            except OSError as error:
                if not path.exists():
                    error.filename = str(path.parent)  # which is what its user knows
                raise
            held = False
            try:
                if not lock_descriptor(descriptor, blocking=blocking):
                    return None
                held = os.fstat(descriptor).st_nlink > 0  # its last holder may have removed the file meanwhile
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                raise MissingToolError(
                    f"The file system of {path.parent} has no file locks, which keep two processes from writing the same files.",
                    hint=f"Use a folder on a local disk: {elsewhere}",
                ) from error
            finally:
                if not held:
                    os.close(descriptor)
            if held:
                return HeldLock(descriptor, path)
