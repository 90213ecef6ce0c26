"""The one way to a library: a stored one, else a remote's, else one that is built now; and what that would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.depot import open_depot as depot_in
from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.events import Events, Forecast
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import LibraryRequest, Need
from flashdepot.remotes import Remotes, users_remotes
from flashdepot.resolve.library import LibraryResult, Rejected, from_depot, from_remotes

if TYPE_CHECKING:
    from flashdepot.build.library import Options

_REJECTED_SHOWN = 3

ANY = LibraryRequest()
SILENT = Events()
NO_LIMITS = Limits()


def open_depot(folder: Path | None = None, events: Events = SILENT) -> Depot:
    """The depot in a folder, or the user's: ``FLASHDEPOT_HOME``, else the user's cache folder.

    Opening one touches nothing. ``events`` is warned of everything that is found damaged. What it lacks is asked of the
    remotes of the user's configuration.
    """
    return depot_in(folder, events.warn, Remotes(users_remotes, events.warn))


def acquire(need: Need | str, depot: Depot, limits: Limits, events: Events, *, may_build: bool = True) -> LibraryResult:
    """The stored library that serves, else a remote's, else one that is built now.

    :param need: of a candidate, or the key of a recipe that a lock pins, which is never built.
    :raises IncompatibleError: when nothing serves and nothing may be built.
    :raises MissingToolError: when nobody has the recipe.
    :raises ConsentError: when compiling takes long and nobody has said yes.
    """
    if isinstance(need, str):
        return _pinned(need, depot, events)
    found, rejected = from_depot(need, depot)
    if (found := found or from_remotes(need, depot, events)) is not None:
        return found
    if not may_build:
        raise IncompatibleError(
            f"Neither the depot {depot.root} nor a remote has a library for this.",
            hint="See the remotes: flashdepot remote ls. Build it: flashdepot get, with the same options.",
        )
    tell_rejected(rejected, events)
    return build_here(need, depot, limits, events)


def _pinned(recipe_key: str, depot: Depot, events: Events) -> LibraryResult:
    manifest = depot.load_intact(recipe_key) or depot.remotes.fetch_recipe(depot, recipe_key, events)
    if manifest is None:
        raise MissingToolError(
            f"The lock pins our wheel over the library {recipe_key[:12]}, and neither the depot {depot.root} nor a remote "
            "has it.",
            hint="Name the depot that has it, --depot DIR, or choose again: flashdepot lock --upgrade",
        )
    return LibraryResult("hit", manifest, depot.libraries.materialise(manifest), 0, 0, 0)


class LibraryPlan(msgspec.Struct, frozen=True):
    """What a call would do: take ``stored`` or fetch ``offered`` from a remote, or else make one as ``forecast`` says."""

    stored: Manifest | None = None
    forecast: Forecast | None = None
    offered: Manifest | None = None

    def __repr__(self) -> str:
        found = self.stored or self.offered
        if found is not None:
            return f"<LibraryPlan: {'stored' if self.stored else 'from a remote'}, {found!r}>"
        return f"<LibraryPlan: to build, {self.forecast!r}>"


def plan_need(
    need: Need | str,
    depot: Depot,
    limits: Limits,
    events: Events,
    *,
    exactly: bool = False,
    options: Options | None = None,
) -> LibraryPlan:
    """What :func:`acquire` would do, or with ``exactly`` what :func:`build_here` would; nothing is compiled.

    What a lock pins is fetched from a remote if the depot lacks it.
    """
    if isinstance(need, str):
        return LibraryPlan(stored=_pinned(need, depot, events).manifest)
    from flashdepot.build.library import Options  # noqa: PLC0415  (a hit needs none of it)
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.resolve.build import foresee_build_of  # noqa: PLC0415

    if not exactly:
        choice = depot.find(need.request)
        if choice.taken is not None:
            return LibraryPlan(stored=choice.taken)
        if (offered := depot.remotes.offers(need.request)) is not None:
            return LibraryPlan(offered=offered)
        tell_rejected(choice.rejected, events)
    found = foresee_build_of(need, depot, probe(depot=depot.root), surveyed(limits), options or Options())
    return LibraryPlan(forecast=found) if isinstance(found, Forecast) else LibraryPlan(stored=found)


def build_here(
    need: Need,
    depot: Depot,
    limits: Limits,
    events: Events,
    options: Options | None = None,
) -> LibraryResult:
    """The library of exactly the recipe that this machine gives a need: compiled and linked here where it is not there."""
    from flashdepot.build.library import Options  # noqa: PLC0415  (a hit needs none of it)
    from flashdepot.diagnose import forewarn  # noqa: PLC0415
    from flashdepot.errors import CompileError  # noqa: PLC0415
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.host.probe import this_platform  # noqa: PLC0415
    from flashdepot.resolve.build import build  # noqa: PLC0415
    from flashdepot.toolchain.choose import asks_machine  # noqa: PLC0415

    limits = surveyed(limits)
    machine = probe(depot=depot.root, tools=asks_machine(need.cuda, this_platform(), need.request.driver))
    for finding in forewarn(machine, need.request.selection.units) if limits.farm is None else ():
        events.warn(f"{finding.sentence} {finding.fix}")
    try:
        built = build(need, depot, machine, limits, options or Options(), events)
    except CompileError as error:
        from flashdepot.diagnose.explain import explained  # noqa: PLC0415  (only a failure reads its log)

        raise explained(error, probe(depot=depot.root)) from None
    if built.status == "built":
        depot.remotes.share(depot, built.manifest, events)
    return built


def surveyed(limits: Limits) -> Limits:
    """The limits with what the workers of a farm have; :raises FlashdepotError: for one that cannot be used."""
    if limits.farm is None:
        return limits
    from flashdepot.build.cluster import survey  # noqa: PLC0415  (most builds have none)

    return replace(limits, farm=survey(limits.farm))


def tell_rejected(rejected: Rejected, events: Events) -> None:
    """Say why what is stored was not taken."""
    for manifest, reasons in rejected[:_REJECTED_SHOWN]:
        events.note(f"The stored library {manifest.recipe_key[:12]} was not taken: {'; '.join(reasons)}.")
    if (more := len(rejected) - _REJECTED_SHOWN) > 0:
        events.note(f"Neither were {more} others; 'flashdepot depot ls' shows them.")
