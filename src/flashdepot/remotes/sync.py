"""A depot and a remote compared: all that a remote has, what only one side has, and what was compiled again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.events import Events
from flashdepot.kernels import FAMILIES
from flashdepot.kernels.c_layer import c_layer_digest
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.remotes.push import Pushed, push
from flashdepot.remotes.remote import OpenRemote, SignedLibrary
from flashdepot.remotes.statements import LibraryStatement, library_places, source_place
from flashdepot.toolchain.targets import TARGETS


def stock(remote: OpenRemote, known: Iterable[Manifest]) -> list[SignedLibrary]:
    """The libraries of a remote that are trusted, of published sources and of those of some known libraries."""
    manifests = list(known)
    # The last place of a library is that of only the recipe, which is under its source as well.
    places = {place for manifest in manifests for place in library_places(manifest)[:-1]}
    sources = [source for manifest in manifests for source in manifest.upstreams.items()]
    for family in FAMILIES:
        versions = map(family.sources.find_sdist, family.sources.known_versions())
        sources += [(family.name, sdist.identified.id) for sdist in versions]
    for name, upstream in sources:
        places |= {source_place(name, upstream, row.platform, c_layer_digest()) for row in TARGETS}
    found = remote.stock(sorted(places))
    libraries = {(lib.statement.summary.recipe_key, lib.statement.manifest_digest): lib for lib in found}
    return [library for _, library in sorted(libraries.items()) if library.statement.summary.kind == LIBRARY]


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
    of each remote were given this user's signature.
    """

    compiled: tuple[str, ...]
    compared: int
    mismatches: tuple[Mismatch, ...]
    unclaimed: tuple[str, ...]
    signed: Mapping[str, int] = msgspec.field(default_factory=dict)


def compare(records: Sequence[ActionRecord], depot: Depot, remotes: Sequence[OpenRemote]) -> AuditReport:
    """Compare what was compiled just now with the objects of the same runs in the depot, and with signed claims."""
    claims = [
        (record, DEPOT, stored.object.digest)
        for record in records
        if (stored := depot.actions.find(record.intent_key, record.inputs.get)) is not None
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


class SyncPlan(msgspec.Struct, frozen=True):
    """What the depot lacks and the remote has, the reverse, and the recipes of which both have libraries that differ."""

    fetched: tuple[LibraryStatement, ...]
    pushed: tuple[Manifest, ...]
    differing: tuple[str, ...]


class Synced(msgspec.Struct, frozen=True):
    """What was done: the libraries that came, those that could not be used, and what went.

    ``pushed`` is ``None`` for a remote that is only read, and where there was nothing to push.
    """

    plan: SyncPlan
    fetched: tuple[Manifest, ...]
    refused: tuple[str, ...]
    pushed: Pushed | None


def plan_sync(remote: OpenRemote, ours: Collection[Manifest]) -> SyncPlan:
    """Compare the libraries of a depot with those of a remote; nothing is fetched but records."""
    theirs = [library.statement for library in stock(remote, ours)]
    return compare_libraries(ours, theirs, may_push=remote.settings.push)


def compare_libraries(ours: Collection[Manifest], theirs: Sequence[LibraryStatement], *, may_push: bool) -> SyncPlan:
    """What is on one side only. Of several libraries of one recipe that the remote has, the first one is fetched."""
    here = {manifest.recipe_key: LibraryStatement.of(manifest).manifest_digest for manifest in ours}
    there: dict[str, list[LibraryStatement]] = {}
    for statement in theirs:
        there.setdefault(statement.summary.recipe_key, []).append(statement)
    return SyncPlan(
        fetched=tuple(statements[0] for key, statements in there.items() if key not in here),
        pushed=tuple(manifest for manifest in ours if may_push and manifest.recipe_key not in there),
        differing=tuple(
            key
            for key, statements in there.items()
            if len({here.get(key, statements[0].manifest_digest), *(s.manifest_digest for s in statements)}) > 1
        ),
    )


def sync(remote: OpenRemote, depot: Depot, plan: SyncPlan, events: Events) -> Synced:
    """Execute a plan. A library that arrives damaged is left out, with a warning; the others are fetched.

    :raises UsageError: when there is something to push and no key to sign it with; all has been fetched then.
    """
    taken = {one.summary.recipe_key: remote.take_library(depot, one, events) for one in plan.fetched}
    came = tuple(manifest for manifest in taken.values() if manifest is not None)
    refused = tuple(key for key, manifest in taken.items() if manifest is None)
    sent = push(remote, depot, plan.pushed, events) if plan.pushed else None
    return Synced(plan, came, refused, sent)
