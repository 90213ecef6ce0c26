"""A depot and a remote, until each has the libraries of the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from flashdepot.depot import Depot
from flashdepot.events import Events
from flashdepot.model.manifest import Manifest
from flashdepot.remotes.fetch import take_library
from flashdepot.remotes.push import Pushed, push
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.statements import LibraryStatement
from flashdepot.remotes.stock import stock


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
    """Compare the libraries of a depot with those of a remote; nothing is fetched but records.

    :raises NetworkError: when the remote fails or is too slow.
    """
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
    """Carry out a plan. A library that arrives damaged is left out, with a warning; the others are fetched.

    :raises UsageError: when there is something to push and no key to sign it with; all has been fetched then.
    :raises NetworkError: when the remote fails or is too slow; what was done by then stays.
    """
    came: list[Manifest] = []
    refused: list[str] = []
    for statement in plan.fetched:
        manifest = take_library(remote, depot, statement, events)
        if manifest is None:
            refused.append(statement.summary.recipe_key)
        else:
            came.append(manifest)
    sent = push(remote, depot, plan.pushed, events) if plan.pushed else None
    return Synced(plan, tuple(came), tuple(refused), sent)
