"""``flashdepot.lock`` on the disk."""

from __future__ import annotations

import shlex
from pathlib import Path

from flashdepot.errors import IncompatibleError, IntegrityError, UsageError
from flashdepot.model.candidate import Judged
from flashdepot.model.lock import LOCK_NAME, Lock
from flashdepot.model.verdict import Reasons
from flashdepot.model.wheel_request import WheelRequest
from flashdepot.resolve.rules import judge
from flashdepot.system.files import disk_errors, write_named
from flashdepot.system.toml import read_toml

_HEAD = (
    "# Written by 'flashdepot lock'. 'flashdepot lock --check' checks it, 'flashdepot lock --upgrade' renews it.\n\n"
)
_LARGEST = 1 << 20


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    :raises UsageError: when it is not there, or cannot be used; it names the key that is wrong.
    """
    hint = f"Write a new one: flashdepot lock --upgrade --out {shlex.quote(str(path))}"
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is not a lock file: it is larger than 1 MB.", hint=hint)
        return Lock.from_toml(read_toml(path))
    except FileNotFoundError:
        raise UsageError(f"There is no lock file {path}.", hint="Write one: flashdepot lock") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, and a lock is a file.", hint=f"Name it: {path}/{LOCK_NAME}") from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be used: {error}.", hint=hint) from error


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all; :raises MissingToolError: when the disk is full or may not be written."""
    import tomli_w  # noqa: PLC0415  (reading a lock does without)

    with disk_errors(path.parent):
        write_named(path, (_HEAD + tomli_w.dumps(lock.to_toml())).encode())


def lock_decision(judged: Judged, request: WheelRequest, *, accept_unverified: bool) -> Lock:
    """The lock of what was chosen.

    :raises IncompatibleError: when it must be compiled first, so that there is nothing yet to pin.
    :raises IntegrityError: when nobody has told its digest, and that was not accepted.
    """
    candidate = judged.candidate
    if candidate.origin.compiles:
        raise IncompatibleError(
            f"The best here is {candidate.name}, and what does not exist yet cannot be pinned.",
            hint="Compile it first, then lock it: flashdepot get. Or take a published wheel: --source official",
        )
    lock = Lock.of(candidate, request.facts)
    if lock.locked.needs_digest and not accept_unverified:
        raise IntegrityError(
            f"No SHA-256 is published for {candidate.name}, of {candidate.wheel.source}: its bytes cannot be pinned.",
            hint="--accept-unverified locks its address; the first 'flashdepot install' of the lock records the digest.",
        )
    return lock


def record_digest(path: Path, lock: Lock, sha256: str, size: int) -> Lock:
    """Pin the bytes of a wheel that was locked without a digest, after its first download; the lock as it is now.

    :param size: in bytes.
    :raises IntegrityError: when the lock has another digest already.
    """
    try:
        pinned = lock.with_digest(sha256, size)
    except ValueError as error:
        raise IntegrityError(
            f"{path} does not agree with what was downloaded: {error}.",
            hint="Somebody has replaced the file there. If you trust the new one: flashdepot lock --upgrade",
        ) from error
    write_lock(path, pinned)
    return pinned


def judge_lock(lock: Lock, request: WheelRequest) -> Reasons:
    """Every reason against using a lock where it is asked about; what was agreed to when it was made is no reason."""
    wheel = lock.locked.wheel
    agreed = WheelRequest(
        request.facts,
        distribution=wheel.distribution,
        version=f"=={wheel.version}",
        sources=frozenset({"ours", "official", "community", wheel.source}),
    )
    return judge(agreed, wheel)
