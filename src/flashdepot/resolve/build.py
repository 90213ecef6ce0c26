"""From a request to a library that is built for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from flashdepot.build.library import BuildPlan, Options, build_library, compile_afresh, foresee_build, prepare
from flashdepot.build.schedule import Outlook
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.errors import IncompatibleError
from flashdepot.events import BuildProgress, Download, Events, Fetch, Forecast, OnFile
from flashdepot.families import obtain_sources
from flashdepot.fit.requests import unmet
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request
from flashdepot.model.target import Platform
from flashdepot.resolve.consent import require_consent
from flashdepot.resolve.forecast import exact, fetches, usual
from flashdepot.resolve.library import LibraryResult, Need
from flashdepot.targets import TARGETS
from flashdepot.toolchain.choose import Toolchain, choose_toolchain, require_compiling


def build(
    need: Need,
    depot: Depot,
    host: HostRecord,
    limits: Limits,
    options: Options,
    events: Events,
) -> LibraryResult:
    """The library of exactly the recipe that this machine gives the request: stored, a remote's, or compiled now.

    :raises ConsentError: before anything is fetched, or else compiled, when that takes long and nobody has said yes.
    :raises MissingToolError: when the machine lacks a tool, an architecture or space.
    :raises IncompatibleError: when what can be built here does not run on the host of the request.
    :raises CompileError: when a compiler refuses.
    :raises NetworkError: when source or toolchain must be fetched and cannot be.
    """
    started = time.monotonic()

    if fetched := _fetches(need, host, depot):
        require_consent(usual(need, fetched, limits), limits, events)
    with events.building() as progress, depot.workspace() as work:
        plan = _plan(need, depot, host, options, progress.note, progress.download, work)
        request = need.request
        units = len(request.selection.units)
        if (stored := depot.load_intact(plan.recipe.key)) is not None:
            return LibraryResult("hit", stored, depot.materialise(stored), 0, units, time.monotonic() - started)
        if (theirs := depot.elsewhere.fetch_recipe(depot, plan.recipe.key, _Fetching(progress))) is not None:
            return LibraryResult("fetched", theirs, depot.materialise(theirs), 0, units, time.monotonic() - started)

        def agreed(outlook: Outlook) -> None:
            if not fetched:
                require_consent(exact(need, plan, outlook, limits), limits, events)

        manifest, outcome = build_library(plan, depot, limits, progress, agreed)
        made = {action.unit for action in plan.actions() if action.name in outcome.compiled}
        compiled = len(made & request.selection.units)
        path = depot.materialise(manifest)
        _require_fit(request, manifest)
        seconds, workers = time.monotonic() - started, Counter(outcome.workers.values())
        return LibraryResult("built", manifest, path, compiled, units - compiled, seconds, dict(workers))


class _Fetching(Events):
    """What a fetch says, to whom the build says it."""

    def __init__(self, progress: BuildProgress) -> None:
        self._progress = progress

    def note(self, text: str) -> None:
        """A note of the build."""
        self._progress.note(text)

    def download(self, name: str) -> AbstractContextManager[Download]:
        """A download of the build."""
        return nullcontext(self._progress.download(name))


def compile_units_afresh(
    need: Need,
    units: Collection[str],
    depot: Depot,
    host: HostRecord,
    limits: Limits,
    events: Events,
) -> tuple[ActionRecord, ...]:
    """Compile some units of a request as :func:`build` would, whatever the depot or a remote has of them.

    It raises what :func:`build` raises.
    """
    require_consent(foresee_units(need, units, depot, host, limits), limits, events)
    with events.building() as progress, depot.workspace() as work:
        plan = _plan(need, depot, host, Options(), progress.note, progress.download, work)
        return compile_afresh(plan, units, depot, limits, progress)


def foresee_units(need: Need, units: Collection[str], depot: Depot, host: HostRecord, limits: Limits) -> Forecast:
    """What :func:`compile_units_afresh` usually takes; it raises what :func:`build` raises before it fetches anything."""
    request = need.request
    chosen = replace(request.selection, units=frozenset(u for u in request.selection.units if u.name in units))
    less = replace(need, request=replace(request, selection=chosen))
    return usual(less, _fetches(less, host, depot), limits)


def foresee_build_of(
    need: Need, depot: Depot, host: HostRecord, limits: Limits, options: Options
) -> Forecast | Manifest:
    """What :func:`build` would do: nothing but to take a stored library, or this. Nothing is fetched or compiled.

    It raises what :func:`build` raises before it fetches anything.
    """
    if fetched := _fetches(need, host, depot):
        return usual(need, fetched, limits)
    with depot.workspace() as work:
        plan = _plan(need, depot, host, options, lambda _: None, lambda _: None, work)
        if (stored := depot.load_intact(plan.recipe.key)) is not None:
            return stored
        return exact(need, plan, foresee_build(plan, depot, limits), limits)


def _fetches(need: Need, host: HostRecord, depot: Depot) -> tuple[Fetch, ...]:
    _require_buildable(need.request.platform, host.platform)
    return fetches(need, host, depot)


def _toolchain(need: Need, depot: Depot, host: HostRecord, work: Path, on_file: OnFile) -> Toolchain:
    request = need.request
    return choose_toolchain(
        need.cuda,
        host,
        request.gpus,
        driver=request.driver,
        folder=depot.layout.toolchains,
        work=work,
        on_file=on_file,
    )


def _require_buildable(platform: Platform, here: Platform) -> None:
    """:raises IncompatibleError: when no library is made for a platform, or not on this machine."""
    targets = [str(row) for row in TARGETS]
    if str(platform) not in targets:
        raise IncompatibleError(
            f"Nothing is built for {platform}: there are {', '.join(targets)}.",
            hint=f"Build for the system that it shall run on: --target {targets[0]}",
        )
    require_compiling(here)


def _plan(
    need: Need,
    depot: Depot,
    host: HostRecord,
    options: Options,
    note: Callable[[str], None],
    on_file: OnFile,
    work: Path,
) -> BuildPlan:
    request, toolchain = need.request, _toolchain(need, depot, host, work, on_file)
    note(f"nvcc {toolchain.nvcc.version}: {toolchain.reason}; host side by {toolchain.host_side}.")
    trees = obtain_sources(need.sources, depot.layout.upstreams, on_file)
    return prepare(trees, request.selection, request.gpus, request.platform, toolchain, depot, options, on_file)


def _require_fit(request: Request, manifest: Manifest) -> None:
    if reasons := unmet(request, manifest):
        raise IncompatibleError(
            f"The library was built and is kept, but the host that it is for cannot use it: {'; '.join(reasons)}.",
            hint="Build on the oldest system that it must run on, for example in a container of that system.",
        )
