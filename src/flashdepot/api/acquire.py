"""The one way to a library: a stored one, else a remote's, else one that is built now; what that takes; a wheel of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flashdepot import __version__
from flashdepot.depot import Depot
from flashdepot.depot import open_depot as depot_in
from flashdepot.errors import FlashdepotError, IncompatibleError, MissingToolError, NetworkError
from flashdepot.events import Events, Forecast
from flashdepot.host import runtime_facts
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Gpus, LibraryRequest, Need
from flashdepot.model.selection import Unit
from flashdepot.remotes import Remotes, users_remotes
from flashdepot.resolve.library import LibraryResult, resolve_library

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Required

    from flashdepot.build.library import Options
    from flashdepot.depot.store import DepotChoice
    from flashdepot.wheel.builder import Wheel

    class How(TypedDict, total=False):
        """What nearly every function of the API takes by name: the fields of :class:`Context`."""

        depot: Required[Depot]
        host: HostRecord | None
        limits: Limits
        events: Events


ANY = LibraryRequest()
SILENT = Events()
NO_LIMITS = Limits()


class Context(msgspec.Struct, frozen=True):
    """What a call works with.

    :param depot: where to look and what to fill.
    :param host: the machine that it is for; this one when it is not given.
    :param limits: what compilers may take, and whether they may start.
    :param events: hear notes, warnings and progress, and answer questions.
    """

    depot: Depot
    host: HostRecord | None = None
    limits: Limits = NO_LIMITS
    events: Events = SILENT

    def need(self, request: LibraryRequest, *, for_wheel: bool = False) -> Need:
        """The need that a request makes on this host."""
        host = self.host or runtime_facts(gpus=request.arch in (None, Gpus.NATIVE))
        need = resolve_library(request, host, self.depot, for_wheel=for_wheel)
        if need.note:
            self.events.note(need.note)
        return need


def open_depot(folder: Path | None = None, events: Events = SILENT) -> Depot:
    """The depot in a folder, or the user's: ``FLASHDEPOT_HOME``, else the user's cache folder.

    Opening one touches nothing. ``events`` is warned of everything that is found damaged. What it lacks is asked of the
    remotes of the user's configuration.
    """
    return depot_in(folder, events.warn, Remotes(users_remotes, events.warn))


def remotes_of(depot: Depot, events: Events) -> Remotes:
    """The remotes that a depot asks; the user's where it was opened without any."""
    return depot.remotes if isinstance(depot.remotes, Remotes) else Remotes(users_remotes, events.warn)


def acquire(
    need: Need | str, context: Context, *, exactly: bool = False, may_build: bool = True, options: Options | None = None
) -> LibraryResult:
    """The stored library that serves, else a remote's, else one that is built now.

    :param need: of a candidate, or the key of a recipe that a lock pins, which is never built.
    :param exactly: only the recipe that this machine's toolchain gives will do, with ``options``.
    :raises IncompatibleError: when nothing serves and nothing may be built.
    :raises MissingToolError: when nobody has the recipe.
    :raises NetworkError: instead of these two, when a remote that may have it did not answer.
    :raises ConsentError: when compiling takes long and nobody has said yes.
    """
    depot = context.depot
    if isinstance(need, str):
        return _pinned(need, context)
    if not exactly:
        choice = depot.find(need.request)
        request, units = need.request, len(need.request.selection.units)
        if had := LibraryResult.had(
            choice.taken, depot, lambda remote: remote.fetch_library(depot, request, context.events), units
        ):
            return had
        _tell_rejected(choice, context.events)
        if not may_build:
            wanted = f"a library for this with the C layer of flashdepot {__version__}"
            build = "Or build it here: flashdepot get, with the same options."
            if not_heard := _not_heard(depot, wanted, build):
                raise not_heard
            raise IncompatibleError(
                f"Neither the depot {depot.root} nor a remote has {wanted}.",
                hint="See which remotes are asked, 'flashdepot remote ls', and whom you trust, 'flashdepot keys ls'. "
                f"{build}",
            )
    return _build(need, context, options)


def _build(need: Need, context: Context, options: Options | None) -> LibraryResult:
    from flashdepot.build.library import Options  # noqa: PLC0415  (a hit needs none of it)
    from flashdepot.diagnose.examine import forewarn  # noqa: PLC0415
    from flashdepot.errors import CompileError  # noqa: PLC0415
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.host.probe import this_platform  # noqa: PLC0415
    from flashdepot.resolve.build import Making  # noqa: PLC0415
    from flashdepot.toolchain.choose import asks_machine  # noqa: PLC0415

    depot, events, limits = context.depot, context.events, _surveyed(context.limits)
    machine = probe(depot=depot.root, tools=asks_machine(need.cuda, this_platform(), need.request.driver))
    for finding in forewarn(machine, need.request.selection.units) if limits.farm is None else ():
        events.warn(f"{finding.sentence} {finding.fix}")
    try:
        built = Making(need, depot, machine, limits, options or Options()).make(events)
    except CompileError as error:
        try:
            from flashdepot.diagnose.explain import explained  # noqa: PLC0415  (only a failure reads its log)
        except MissingToolError:  # what it reads with is not there for this Python
            raise error from None
        raise explained(error, probe(depot=depot.root)) from None
    if built.status == "built":
        depot.remotes.share(depot, built.manifest, events)
    return built


def _pinned(recipe_key: str, context: Context) -> LibraryResult:
    depot, stored = context.depot, context.depot.load_intact(recipe_key)
    had = LibraryResult.had(stored, depot, lambda remote: remote.fetch_recipe(depot, recipe_key, context.events))
    if had is None:
        wanted = f"the library {recipe_key[:12]}, whose wheel the lock pins"
        elsewhere = "Or name the depot that has it, --depot DIR, or choose again: flashdepot lock --upgrade"
        raise _not_heard(depot, wanted, elsewhere) or MissingToolError(
            f"Neither the depot {depot.root} nor a remote has {wanted}.",
            hint=elsewhere.removeprefix("Or ").capitalize(),
        )
    return had


def _not_heard(depot: Depot, wanted: str, elsewhere: str) -> FlashdepotError | None:
    """The error of a thing that a remote may have that was not heard; ``None`` when all have answered.

    Where this machine lacked what reading them takes, as room on its disk, that is the error.
    """
    from flashdepot.net.fetch import offline  # noqa: PLC0415  (only a miss asks)

    names = depot.remotes.not_heard()
    if not names:
        return None
    for failure in names.values():
        if isinstance(failure, MissingToolError):
            return failure
    which = f"the remote{'s' if len(names) > 1 else ''} {' and '.join(names)}"
    forbidden = offline() and not any(names.values())
    why = f"--offline or FLASHDEPOT_OFFLINE forbids asking {which}" if forbidden else f"{which} could not be asked"
    return NetworkError(
        f"The depot {depot.root} does not have {wanted}, and {why}.",
        hint=f"Run the same command again when it can be asked. {elsewhere}",
    )


class LibraryPlan(msgspec.Struct, frozen=True):
    """What a call would do: take ``stored`` or fetch ``offered`` from a remote, or else make one as ``forecast`` says."""

    stored: Manifest | None = None
    forecast: Forecast | None = None
    offered: Manifest | None = None

    @property
    def found(self) -> Manifest | None:
        """The library that is there already, here or in a remote."""
        return self.stored or self.offered

    def __repr__(self) -> str:
        if self.found is not None:
            return f"<LibraryPlan: {'stored' if self.stored else 'from a remote'}, {self.found!r}>"
        return f"<LibraryPlan: to build, {self.forecast!r}>"


def plan_need(
    need: Need | str,
    context: Context,
    *,
    exactly: bool = False,
    options: Options | None = None,
    made: Collection[Unit] = (),
) -> LibraryPlan:
    """What :func:`acquire` would do; nothing is compiled. What a lock pins is fetched from a remote if the depot lacks it.

    :param made: units whose device code other libraries will have brought by then.
    """
    if isinstance(need, str):
        return LibraryPlan(stored=_pinned(need, context).manifest)
    from flashdepot.build.library import Options  # noqa: PLC0415  (a hit needs none of it)
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.resolve.build import Making  # noqa: PLC0415

    depot = context.depot
    if not exactly:
        choice = depot.find(need.request)
        if choice.taken is not None:
            return LibraryPlan(stored=choice.taken)
        if offered := depot.remotes.first(lambda remote: remote.offers(need.request)):
            return LibraryPlan(offered=offered[0].summary)
        _tell_rejected(choice, context.events)
    machine, limits = probe(depot=depot.root), _surveyed(context.limits)
    found = Making(need, depot, machine, limits, options or Options()).foresee(made)
    return LibraryPlan(forecast=found) if isinstance(found, Forecast) else LibraryPlan(stored=found)


def _surveyed(limits: Limits) -> Limits:
    """The limits with what the workers of a farm have; :raises FlashdepotError: for one that cannot be used."""
    if limits.farm is None:
        return limits
    from flashdepot.build.cluster import survey  # noqa: PLC0415  (most builds have none)

    return replace(limits, farm=survey(limits.farm))


def _tell_rejected(choice: DepotChoice, events: Events) -> None:
    for manifest, reasons in choice.rejected[:1]:
        more = len(choice.rejected) - 1
        others = f" Nor was any of the rest ({more}): flashdepot depot ls" if more else ""
        events.note(f"The stored library {manifest.recipe_key[:12]} was not taken: it {'; it '.join(reasons)}.{others}")


def wheel_of(library: LibraryResult, sources: Mapping[str, str], depot: Depot, folder: Path) -> Wheel:
    """Write the wheel of a library into a folder; ``sources`` names that of each family."""
    from flashdepot.kernels import obtain_sources  # noqa: PLC0415
    from flashdepot.wheel.builder import build_wheel  # noqa: PLC0415

    trees = obtain_sources(sources, depot.layout.upstreams)
    return build_wheel(library.manifest, library.path, trees, folder.absolute())
