"""Reproducibility as proof: what was compiled again is compared with what the depot has and what remotes claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.remotes.remote import OpenRemote

DEPOT = "the depot"


class Mismatch(msgspec.Struct, frozen=True):
    """A compiler run whose object somebody has with other bytes: who, the SHA-256 there, and the right one."""

    name: str
    place: str
    claimed: str
    compiled: str


class AuditReport(msgspec.Struct, frozen=True):
    """The names of what was compiled, how many objects were compared with it, and those that differ.

    ``unclaimed`` are compiler runs of which neither the depot nor a remote has a record. ``signed`` has how many records
    of each remote have got this user's signature.
    """

    compiled: tuple[str, ...]
    compared: int
    mismatches: tuple[Mismatch, ...]
    unclaimed: tuple[str, ...]
    signed: Mapping[str, int] = msgspec.field(default_factory=dict)


def compare(records: Sequence[ActionRecord], depot: Depot, remotes: Sequence[OpenRemote]) -> AuditReport:
    """Compare what was compiled just now with the objects of the same runs in the depot, and with signed claims.

    :raises NetworkError: when a remote fails.
    """
    claims = [
        (record, DEPOT, stored.object.digest)
        for record in records
        if (stored := depot.find_action(record.intent_key, record.inputs.get)) is not None
    ]
    for remote in remotes:
        known = remote.units([record.intent_key for record in records]) if records else {}
        claims.extend(
            (record, f"the remote {remote.name}", statement.object.digest)
            for record in records
            for statement in known[record.intent_key]
            if statement.action_key == record.action_key
        )
    wrong = [
        Mismatch(record.name, place, claimed, record.object.digest)
        for record, place, claimed in claims
        if claimed != record.object.digest
    ]
    claimed_names = {record.name for record, _, _ in claims}
    return AuditReport(
        compiled=tuple(record.name for record in records),
        compared=len(claims),
        mismatches=tuple(wrong),
        unclaimed=tuple(record.name for record in records if record.name not in claimed_names),
    )
