"""Recording in ``flashdepot.lock`` the digest of a wheel that was taken without one."""

from __future__ import annotations

from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.lock import Lock
from flashdepot.resolve.lock_file import read_lock, record_digest


def pin(path: Path, lock: Lock | None, wheel: WheelFile) -> str:
    """Write the digest of an installed wheel into the lock file, when its lock has none yet.

    :param lock: what was locked, or what would be; ``None`` for a wheel that the user named.
    :returns: a sentence about what was recorded; empty when nothing had to be.
    :raises MissingToolError: when the file cannot be written.
    """
    if lock is None or not lock.locked.needs_digest:
        return ""
    if path.exists() and not _is_of(path, lock):
        return f"{path} pins another wheel and was left as it is; the SHA-256 of this one is {wheel.sha256}."
    record_digest(path, lock, wheel.sha256, wheel.size)
    return f"Its SHA-256 is recorded in {path}: flashdepot install --locked takes no other bytes from now on."


def _is_of(path: Path, lock: Lock) -> bool:
    try:
        return read_lock(path).locked.wheel.url == lock.locked.wheel.url
    except UsageError:
        return False
