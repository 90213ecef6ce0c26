"""Remotes: put there what was made here, and fetch what others have made."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flashdepot.api.acquire import ANY, SILENT, Context, remotes_of
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.errors import UsageError
from flashdepot.events import Events, Forecast
from flashdepot.kernels import FAMILIES
from flashdepot.kernels.c_layer import c_layer_digest
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.model.request import LibraryRequest, Need
from flashdepot.net.fetch import offline, require_network
from flashdepot.remotes import Remotes
from flashdepot.remotes.push import Pushed, countersign
from flashdepot.remotes.push import push as push_to
from flashdepot.remotes.remote import OpenRemote
from flashdepot.remotes.statements import LibraryStatement, library_places, source_place
from flashdepot.toolchain.targets import TARGETS

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from flashdepot.api.acquire import How
    from flashdepot.resolve.build import Making


def pushed_to(remotes: Remotes) -> list[OpenRemote]:
    """The remotes that are set to be pushed to."""
    return [remote for remote in remotes.all() if remote.settings.push]


def require_pushed_to(remotes: Remotes) -> list[OpenRemote]:
    """The same; :raises UsageError: when there is none."""
    if not (found := pushed_to(remotes)):
        raise UsageError("No remote is set to be pushed to.", hint="Set one: flashdepot remote add NAME URL --push")
    return found


def require_reach(remote: OpenRemote, doing: str) -> None:
    """:raises NetworkError: for a remote elsewhere, where the network is forbidden."""
    if not remote.settings.is_local:
        require_network(f"{doing} {remote.name}")


def push(
    manifests: Sequence[Manifest],
    *,
    to: str | None = None,
    verify: bool = False,
    dry_run: bool = False,
    depot: Depot,
    events: Events = SILENT,
) -> Mapping[str, Pushed]:
    """Put libraries of the depot, and their units, into remotes, signed.

    :param to: the name of one remote; without it, all that are set to be pushed to.
    :param verify: read every blob that is there already, and write those again that have other bytes.
    :param dry_run: only compare.
    :returns: by the name of the remote, what is there now and what had to be sent.
    :raises UsageError: when there is no such remote, or no key to sign with.
    :raises NetworkError: when a remote cannot be written; no record is there then whose blobs are not.
    """
    remotes, done = remotes_of(depot, events), {}
    for remote in [remotes.named(to)] if to else require_pushed_to(remotes):
        require_reach(remote, "Pushing to")
        done[remote.name] = push_to(remote, depot, manifests, events, verify=verify, dry_run=dry_run)
    return done


def stock(remote: OpenRemote, known: Iterable[Manifest]) -> list[LibraryStatement]:
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
    libraries = {(one.summary.recipe_key, one.manifest_digest): one for one in remote.stock(sorted(places))}
    return [statement for _, statement in sorted(libraries.items()) if statement.summary.kind == LIBRARY]


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


def audit(
    request: LibraryRequest = ANY, *, sample: int | None = 2, sign: bool = False, **how: Unpack[How]
) -> AuditReport:
    """Compile units of a request again, and compare their bytes with those in the depot and with what remotes claim.

    :param sample: how many units, chosen at random; ``None`` for all of them.
    :param sign: when all bytes are the same, sign what the remotes that are set to be pushed to state of these units.
    :raises UsageError: when there is no such remote, or no key to sign with.
    :raises NetworkError: when a remote fails.

    It raises what :func:`flashdepot.api.build` raises as well.
    """
    from flashdepot.remotes.keys import choose_key  # noqa: PLC0415
    from flashdepot.remotes.user_settings import UserSettings  # noqa: PLC0415

    context = Context(**how)
    depot, events = context.depot, context.events
    remotes = remotes_of(depot, events)
    signed = require_pushed_to(remotes) if sign else []
    for remote in signed:
        require_reach(remote, "Signing in")
    key = choose_key(UserSettings.of_this_user()) if sign else None
    making = _making(request, context)
    records = making.compile_units(_drawn(making.need, sample), events)
    asked = [remote for remote in remotes.all() if remote.settings.is_local or not offline()]
    report = _compared(records, depot, asked)
    if key is None or report.mismatches:
        return report
    return replace(report, signed={remote.name: countersign(remote, records, key) for remote in signed})


def _compared(records: Sequence[ActionRecord], depot: Depot, remotes: Sequence[OpenRemote]) -> AuditReport:
    """Compare what was compiled just now with the objects of the same runs in the depot, and with signed claims."""
    claims = [
        (record, "the depot", stored.object.digest)
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


def plan_audit(request: LibraryRequest = ANY, *, sample: int | None = 2, **how: Unpack[How]) -> Forecast:
    """What :func:`audit` would take for as many units, drawn again; nothing is fetched or compiled."""
    making = _making(request, Context(**how))
    return making.foresee_units(_drawn(making.need, sample))


def _making(request: LibraryRequest, context: Context) -> Making:
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.resolve.build import Making  # noqa: PLC0415

    return Making(context.need(request), context.depot, probe(depot=context.depot.root), context.limits)


def _drawn(need: Need, sample: int | None) -> list[str]:
    """Units at random, so that nobody who replaces one can know which are checked; all of them for ``None``."""
    units = sorted(unit.name for unit in need.request.selection.units)
    return units if sample is None else random.SystemRandom().sample(units, min(sample, len(units)))
