"""Read-through: from a remote into the depot, whatever it has that is trusted and fits."""

from __future__ import annotations

from collections.abc import Callable

from flashdepot.depot import Depot, choose
from flashdepot.depot.actions import ActionRecord, Output
from flashdepot.errors import IntegrityError
from flashdepot.events import Events
from flashdepot.fit.requests import unmet
from flashdepot.model.limits import size
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.model.request import Request
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.statements import (  # the places are for Remotes, which imports this only when it asks one
    LibraryStatement,
    UnitStatement,
    recipe_place,
    request_place,
    unit_place,
)

__all__ = [
    "fetch_library",
    "fetch_recipe",
    "fetch_units",
    "offers",
    "recipe_place",
    "request_place",
    "take_library",
    "unit_place",
]


def offers(remote: OpenRemote, request: Request) -> list[LibraryStatement]:
    """The libraries of a remote that serve a request, the best first; raises as :class:`Store`."""
    left = [statement for statement in remote.libraries(request) if statement.summary.kind == LIBRARY]
    found = []
    while taken := choose(request, (statement.summary for statement in left)).taken:
        best = next(statement for statement in left if statement.summary is taken)
        found.append(best)
        left.remove(best)
    return found


def fetch_library(remote: OpenRemote, depot: Depot, request: Request, events: Events) -> Manifest | None:
    """Put the best library of a remote that serves a request into the depot; ``None`` when it has none.

    :raises NetworkError: when the remote fails or is too slow.
    """
    for statement in offers(remote, request):
        if (manifest := take_library(remote, depot, statement, events)) and not unmet(request, manifest):
            return manifest
    return None


def fetch_recipe(remote: OpenRemote, depot: Depot, recipe_key: str, events: Events) -> Manifest | None:
    """Put the library of a recipe into the depot; ``None`` when the remote does not have it, or not whole.

    :raises NetworkError: when the remote fails or is too slow.
    """
    for statement in remote.library(recipe_key):
        if manifest := take_library(remote, depot, statement, events):
            return manifest
    return None


def take_library(remote: OpenRemote, depot: Depot, statement: LibraryStatement, events: Events) -> Manifest | None:
    """Put one library of a remote into the depot; ``None``, with a warning, when it lacks a part or a part is wrong.

    :raises NetworkError: when the remote fails or is too slow.
    """
    try:
        manifest = remote.manifest(statement)
        blobs = [Output(file.digest, file.size) for file in manifest.files if not file.link]
        total = sum(blob.size for blob in dict.fromkeys(blobs))
        with events.download(f"{manifest.recipe_key[:12]} from {remote.name}") as progress:
            remote.fetch(blobs, depot, lambda done: progress(done, total) if done else None)
        depot.artifacts.adopt(manifest)
    except IntegrityError as error:
        remote.warn(f"The library {statement.summary.recipe_key[:12]} of {remote.name} is not used: {error.message}.")
        return None
    return manifest


def fetch_units(
    remote: OpenRemote,
    depot: Depot,
    wanted: set[str],
    current_digest: Callable[[str], str | None],
    note: Callable[[str], None],
) -> None:
    """Put what a remote has of some compiler runs into the depot, and take their intents out of ``wanted``.

    :raises NetworkError: when the remote fails or is too slow; what has arrived by then is in the depot.
    """
    known = remote.units(wanted)
    remote.names([statement for statements in known.values() for statement in statements])
    records = [record for statements in known.values() if (record := _first(remote, statements, current_digest))]
    if not records:
        return
    total = sum(record.object.size for record in records)
    note(f"Fetching {len(records)} of {len(wanted)} compilations from {remote.name}, {size(total)}.")
    try:
        remote.fetch([record.object for record in records], depot, lambda _done: None)
    except IntegrityError as error:
        remote.warn(f"{remote.name}: {error.message}. What it was for is compiled.")
    for record in records:
        if (path := depot.blobs.find(record.object.digest)) is not None:
            depot.actions.record(record, path)
            wanted.discard(record.intent_key)


def _first(
    remote: OpenRemote, statements: list[UnitStatement], current_digest: Callable[[str], str | None]
) -> ActionRecord | None:
    """The first run of inputs that are now what they were then."""
    for statement in statements:
        try:
            inputs = remote.inputs(statement, current_digest)
        except IntegrityError:
            continue
        if inputs is not None:
            return ActionRecord(
                action_key=statement.action_key,
                intent_key=statement.intent_key,
                name=statement.name,
                inputs=inputs,
                cpu_seconds=0,
                wall_seconds=0,
                peak_rss=0,
                outputs={"object": statement.object},
            )
    return None
