"""Remotes: put there what was made here, and fetch what others have made."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flashdepot.api.acquire import ANY, SILENT, Context, remotes_of
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.events import Events, Forecast
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.model.request import LibraryRequest, Need
from flashdepot.net.fetch import offline, require_network
from flashdepot.remotes import Remotes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from flashdepot.api.acquire import How
    from flashdepot.remotes.push import AuditReport, Pushed, Synced, SyncPlan
    from flashdepot.remotes.remote import OpenRemote
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
    depot: Depot,
    events: Events = SILENT,
) -> Mapping[str, Pushed]:
    """Put libraries of the depot, and their units, into remotes, signed.

    :param to: the name of one remote; without it, all that are set to be pushed to.
    :param verify: read every blob that is there already, and write those again that have other bytes.
    :returns: by the name of the remote, what is there now and what had to be sent.
    :raises UsageError: when there is no such remote, or no key to sign with.
    :raises NetworkError: when a remote cannot be written; no record is there then whose blobs are not.
    """
    from flashdepot.remotes.push import push as push_to  # noqa: PLC0415  (most calls only read)

    remotes, done = remotes_of(depot, events), {}
    for remote in [remotes.named(to)] if to else require_pushed_to(remotes):
        require_reach(remote, "Pushing to")
        done[remote.name] = push_to(remote, depot, manifests, events, verify=verify)
    return done


class RemoteSync(msgspec.Struct, frozen=True):
    """The result of synchronizing with one remote: the plan, what was done of it, and what stopped it.

    ``plan`` is ``None`` where the remote could not be read, ``done`` the same, and in a dry run.
    """

    remote: str
    url: str
    plan: SyncPlan | None = None
    done: Synced | None = None
    problem: FlashdepotError | None = None

    @property
    def fetched(self) -> Sequence[Manifest]:
        """The libraries that came from it, or would."""
        if self.done is not None:
            return self.done.fetched
        return [statement.summary for statement in self.plan.fetched] if self.plan is not None else []


def sync(
    names: Sequence[str] = (),
    *,
    dry_run: bool = False,
    depot: Depot,
    events: Events = SILENT,
) -> list[RemoteSync]:
    """Fetch the libraries that remotes have and the depot lacks, and push the reverse, signed.

    Pushed is to remotes that are set to be pushed to, and what the depot had before. A remote that fails does not keep
    the others from it: see ``problem`` of each.

    :param names: of the remotes; all that are set when there is none.
    :param dry_run: only compare.
    :raises UsageError: when there is no such remote, or none at all.
    """
    remotes = remotes_of(depot, events)
    chosen = [remotes.named(name) for name in dict.fromkeys(names)] or list(remotes.all())
    if not chosen:
        raise UsageError("There is no remote to synchronize with.", hint="Add one: flashdepot remote add NAME URL")
    ours = [manifest for manifest in depot.artifacts.manifests() if manifest.kind == LIBRARY]
    return [_synced(remote, ours, depot, events, dry_run=dry_run) for remote in chosen]


def _synced(remote: OpenRemote, ours: Sequence[Manifest], depot: Depot, events: Events, *, dry_run: bool) -> RemoteSync:
    from flashdepot.remotes.push import plan_sync  # noqa: PLC0415
    from flashdepot.remotes.push import sync as carry_out  # noqa: PLC0415

    name, url, plan = remote.name, remote.settings.url, None
    try:
        require_reach(remote, "Synchronizing with")
        plan = plan_sync(remote, ours)
        if dry_run:
            return RemoteSync(name, url, plan)
        return RemoteSync(name, url, plan, carry_out(remote, depot, plan, events))
    except FlashdepotError as error:
        return RemoteSync(name, url, plan, problem=error)


def audit(
    request: LibraryRequest = ANY,
    *,
    sample: int | None = 2,
    sign: bool = False,
    **how: Unpack[How],
) -> AuditReport:
    """Compile units of a request again, and compare their bytes with those in the depot and with what remotes claim.

    :param sample: how many units, chosen at random; ``None`` for all of them.
    :param sign: when all bytes are the same, sign what the remotes that are set to be pushed to state of these units.
    :raises UsageError: when there is no such remote, or no key to sign with.
    :raises NetworkError: when a remote fails.

    It raises what :func:`flashdepot.api.build` raises as well.
    """
    from flashdepot.remotes.keys import choose_key  # noqa: PLC0415
    from flashdepot.remotes.push import compare  # noqa: PLC0415
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
    report = compare(records, depot, asked)
    if key is None or report.mismatches:
        return report
    from flashdepot.remotes.push import countersign  # noqa: PLC0415

    return replace(report, signed={remote.name: countersign(remote, records, key) for remote in signed})


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
