"""Wheels: choose among all that exist, and pin the choice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashdepot.api.libraries import open_depot
from flashdepot.depot import Depot
from flashdepot.events import Events
from flashdepot.host import wheel_facts
from flashdepot.model.candidate import WheelRequest
from flashdepot.model.diagnosis import Reasons, Verdict, verdict_of
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.plan import Resolution, candidates_for

if TYPE_CHECKING:
    from flashdepot.resolve.lock import Lock

_SILENT = Events()


def resolve(
    request: WheelRequest | None = None,
    library: LibraryRequest | None = None,
    *,
    host: HostRecord | None = None,
    depot: Depot | None = None,
    events: Events = _SILENT,
) -> Resolution:
    """What there is for an environment: published wheels, stored libraries, and what could be built.

    :param request: the facts of the environment and what may be taken; without it, those of ``host``.
    :param library: what a library of ours must have.
    :param host: the machine that would compile; this one when it is not given.
    :raises UsageError: for an upstream or a selection that is not known.
    """
    depot = depot or open_depot(events=events)
    host = host or wheel_facts()
    request = request or WheelRequest(facts_of(host))
    return candidates_for(request, library or LibraryRequest(), host, depot, events.warn)


class LockState(msgspec.Struct, frozen=True):
    """A lock, and what speaks against using it where it was asked about."""

    lock: Lock
    reasons: Reasons

    @property
    def verdict(self) -> Verdict:
        """The worst of the reasons."""
        return verdict_of(self.reasons)


def check_lock(request: WheelRequest, path: Path | None = None) -> LockState:
    """Whether a lock, this folder's where none is named, still fits; :raises UsageError: when it cannot be used."""
    from flashdepot.resolve.lock import (  # noqa: PLC0415
        LOCK_NAME,
        judge_lock,
        read_lock,
    )

    found = read_lock(path or Path(LOCK_NAME))
    return LockState(found, judge_lock(found, request))


def lock(resolution: Resolution, path: Path | None = None, *, accept_unverified: bool = False) -> Lock | None:
    """Pin what was decided, by address and SHA-256; ``None`` when nothing was.

    :param path: the file to write; ``flashdepot.lock`` in this folder when it is not given.
    :param accept_unverified: pin the address of a wheel whose digest nobody has told.
    :raises IncompatibleError: when it must be compiled first, so that there is nothing yet to pin.
    :raises IntegrityError: when nobody has told its digest, and that was not accepted.
    :raises MissingToolError: when the disk is full or may not be written.
    """
    chosen = resolution.decision.chosen
    if chosen is None:
        return None
    from flashdepot.resolve.lock import (  # noqa: PLC0415
        LOCK_NAME,
        lock_decision,
        write_lock,
    )

    made = lock_decision(chosen, resolution.request, accept_unverified=accept_unverified)
    write_lock(path or Path(LOCK_NAME), made)
    return made
