"""From a request to a library that is built for it, and what that takes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from flashdepot.build.library import BuildPlan, Options, build_library, compile_afresh, foresee_build, prepare
from flashdepot.build.local import reserve
from flashdepot.build.schedule import HOST_SIDE, Capacity, Job, Outlook, c_layer, foresee, link_seconds
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.events import Alternative, BuildProgress, Download, Events, Fetch, Forecast, OnFile
from flashdepot.fit.requests import unmet
from flashdepot.host.probe import this_platform
from flashdepot.host.surroundings import crowding, usable_cores, usable_memory
from flashdepot.kernels import family_of, obtain_sources
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import Sides
from flashdepot.model.request import Need
from flashdepot.model.selection import PROFILES, Selection, Unit, select
from flashdepot.resolve.consent import require_consent
from flashdepot.resolve.library import LibraryResult
from flashdepot.resolve.times import usual_jobs
from flashdepot.toolchain.archives import is_release_provided
from flashdepot.toolchain.choose import choose_toolchain, foresee_toolchain, require_compiling
from flashdepot.toolchain.nvcc import inspect, named_root
from flashdepot.toolchain.targets import TARGETS
from flashdepot.toolchain.wheels import is_provided
from flashdepot.toolchain.zig import compiling_version, first_link_seconds, is_zig_provided, preprocessing_version

_MB = 10**6
_NVCC = Fetch("NVIDIA's compiler", 102 * _MB, 279 * _MB)
_ZIG = Fetch("zig", 83 * _MB, 290 * _MB)
_OLDER_ZIG = Fetch("an older zig, with which nvcc 12 preprocesses", 79 * _MB, 250 * _MB)
_OTHER_NVCC = Fetch("NVIDIA's compiler of another CUDA, from its archives", 80 * _MB, 190 * _MB)
"""The wheels of nvcc 13.0.88 and of the pinned zigs, and their folders in a depot, measured on 2026-11-22. Of NVIDIA's
archives what the same programs of 12.4 take in Debian's package."""

_SOURCE_UNPACKED = 27 * _MB
_KEPT = 2 * _MB
"""Of a unit for one architecture: 40 MB of a shared library, 46 MB of a static one, and 46 MB of objects for 72 units."""


def fetches(need: Need, host: HostRecord, depot: Depot) -> tuple[Fetch, ...]:
    """What must be fetched before the compilers can be asked."""
    platform, targets = str(need.request.platform), [str(row) for row in TARGETS]
    if platform not in targets:
        raise IncompatibleError(
            f"Nothing is built for {platform}: there are {', '.join(targets)}.",
            hint=f"Build for the system that it should run on: --target {targets[0]}",
        )
    if not depot.remotes.all() and next(depot.actions.files(), None) is None:  # nobody has device code
        require_compiling(host.platform)
    folder = depot.layout.toolchains
    found = []
    request = need.request
    if isinstance(need.cuda, Path):
        require_compiling(host.platform)
        cuda = inspect(named_root(need.cuda)).version
    else:
        foreseen = foresee_toolchain(need.cuda, host, request.gpus, driver=request.driver, host_side=True)
        cuda = foreseen.cuda
        if foreseen.release:
            if not is_release_provided(foreseen.release, host.platform, folder):
                found.append(_OTHER_NVCC)
        elif foreseen.toolkit is None and not is_provided(host.platform, folder):
            found.append(_NVCC)
    zigs = dict.fromkeys((compiling_version(), preprocessing_version(cuda)))
    fetched = zip(zigs, (_ZIG, _OLDER_ZIG), strict=False)
    found += [fetch for version, fetch in fetched if not is_zig_provided(host.platform, folder, version)]
    for family, spec in need.sources.items():
        if size := family_of(family).sources.to_fetch(spec, depot.layout.upstreams):
            found.append(Fetch(f"the source of {family_of(family).title}", size))
        found.extend(family_of(family).to_fetch(host.platform, folder))
    return tuple(found)


def usual(need: Need, fetched: tuple[Fetch, ...], limits: Limits, first_link: float) -> Forecast:
    """What it usually takes when nothing was compiled before, and some things must be fetched first.

    :param first_link: seconds that only the first link for a target takes.
    """
    selection = need.request.selection
    if this_platform().system == "windows":  # device code is a remote's
        host_sides = [Job(unit.name, HOST_SIDE.seconds, HOST_SIDE.peak) for unit in selection.units]
        outlook = foresee([*host_sides, *c_layer()], (), _capacity(limits))
        return _forecast(need, (), outlook, limits, fetched, first_link, len(host_sides))
    return _forecast(need, selection.units, _outlook(selection, need, limits), limits, fetched, first_link)


def exact(need: Need, plan: BuildPlan, outlook: Outlook, limits: Limits, first_link: float) -> Forecast:
    """What it takes by the compilers that are here, and by what was compiled before."""
    actions = plan.actions()
    sides = Sides.of(actions)
    left = {action.unit for action in actions if action.unit is not None and action.name in outlook.jobs}
    # Around device code that is to be made there is a host side in any case.
    around = sum(
        action.name in sides.host & outlook.jobs and not outlook.jobs.intersection(action.needs.values())
        for action in actions
    )
    return _forecast(need, left, outlook, limits, None, first_link, around)


def _forecast(
    need: Need,
    left: Collection[Unit],
    outlook: Outlook,
    limits: Limits,
    fetched: tuple[Fetch, ...] | None,
    first_link: float,
    host_sides: int = 0,
) -> Forecast:
    units = need.request.selection.units
    seconds = _wall_seconds(outlook, len(units), limits) + first_link
    disk = (len(left) + host_sides) * len(need.request.gpus) * _KEPT
    disk += sum(fetch.unpacked or fetch.size + _SOURCE_UNPACKED for fetch in fetched or ())
    return Forecast(
        units=len(units),
        compiled=len(units) - len(left),
        jobs=max(1, outlook.at_once),
        seconds=seconds,
        memory=outlook.peak,
        memory_limit=outlook.memory,
        disk=disk,
        fetches=fetched or (),
        # What they take is known for device code that is to be made; where there is none, they save little.
        alternatives=tuple(_alternatives(need, seconds, limits)) if left else (),
        is_exact=fetched is None,
        host_sides=host_sides,
    )


def _alternatives(need: Need, seconds: float, limits: Limits) -> Iterator[Alternative]:
    """Profiles that are contained in what is asked for, and take less than half the time."""
    asked = need.request.selection
    for name, profile in PROFILES.items():
        with contextlib.suppress(UsageError):  # nothing of it is in there
            less = select(profile, asked.units)
            takes = _wall_seconds(_outlook(less, need, limits), len(less.units), limits)
            if takes < seconds / 2:
                yield Alternative(f"--profile {name}", takes)


def _outlook(selection: Selection, need: Need, limits: Limits) -> Outlook:
    jobs = usual_jobs(selection, len(need.request.gpus), Options().front_end)
    return foresee(jobs, (), _capacity(limits))


def _wall_seconds(outlook: Outlook, units: int, limits: Limits) -> float:
    """Until it is compiled and linked, where two compilers share a core as well."""
    crowded = crowding(outlook.at_once) if limits.farm is None else 1.0
    return outlook.seconds * crowded + link_seconds(units)


def _first_link(need: Need, host: HostRecord, depot: Depot) -> float:
    target = next(row for row in TARGETS if row.platform == need.request.platform)
    return first_link_seconds(host.platform, depot.layout.toolchains, target.zig)


def _capacity(limits: Limits) -> Capacity:
    if limits.farm is not None:
        return Capacity(max(1, min(limits.jobs or limits.farm.slots, limits.farm.slots)), limits.farm.memory)
    memory = usable_memory()
    return Capacity(limits.jobs or usable_cores(), limits.memory or memory - reserve(memory))


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
    if fetched := fetches(need, host, depot):
        require_consent(usual(need, fetched, limits, _first_link(need, host, depot)), limits, events)
    with events.building() as progress, depot.workspace() as work:
        plan = _plan(need, depot, host, options, progress.note, progress.download, work)
        request = need.request
        units = len(request.selection.units)
        stored = depot.load_intact(plan.recipe.key)
        found = stored or depot.remotes.fetch_recipe(depot, plan.recipe.key, _Fetching(progress))
        if found is not None:
            return LibraryResult("hit" if stored else "fetched", found, depot.libraries.materialise(found), 0, units)

        def agreed(outlook: Outlook) -> None:
            if not fetched:
                forecast = exact(need, plan, outlook, limits, _first_link(need, host, depot))
                require_consent(forecast, limits, events)

        manifest, outcome = build_library(plan, depot, limits, progress, agreed)
        made = {action.unit for action in plan.actions() if action.name in outcome.compiled}
        compiled = len(made & request.selection.units)
        path = depot.libraries.materialise(manifest)
        if reasons := unmet(request, manifest):
            raise IncompatibleError(
                f"The library was built and is kept, but the host that it is for cannot use it: {'; '.join(reasons)}.",
                hint="Build on the oldest system that it must run on, for example in a container of that system.",
            )
        workers = dict(Counter(outcome.workers.values()))
        return LibraryResult("built", manifest, path, compiled, units - compiled, workers=workers)


class _Fetching(Events):
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
    """Compile some units of a request as :func:`build` would, whatever the depot or a remote has of them."""
    require_consent(foresee_units(need, units, depot, host, limits), limits, events)
    with events.building() as progress, depot.workspace() as work:
        plan = _plan(need, depot, host, Options(), progress.note, progress.download, work)
        return compile_afresh(plan, units, depot, limits, progress)


def foresee_units(need: Need, units: Collection[str], depot: Depot, host: HostRecord, limits: Limits) -> Forecast:
    """What :func:`compile_units_afresh` usually takes."""
    request = need.request
    chosen = replace(request.selection, units=frozenset(u for u in request.selection.units if u.name in units))
    less = replace(need, request=replace(request, selection=chosen))
    return usual(less, fetches(less, host, depot), limits, 0.0)


def foresee_build_of(
    need: Need, depot: Depot, host: HostRecord, limits: Limits, options: Options
) -> Forecast | Manifest:
    """What :func:`build` would do: nothing but to take a stored library, or this. Nothing is fetched or compiled."""
    if fetched := fetches(need, host, depot):
        return usual(need, fetched, limits, _first_link(need, host, depot))
    with depot.workspace() as work:
        plan = _plan(need, depot, host, options, lambda _: None, lambda _: None, work)
        if (stored := depot.load_intact(plan.recipe.key)) is not None:
            return stored
        outlook = foresee_build(plan, depot, limits)
        return exact(need, plan, outlook, limits, _first_link(need, host, depot))


def _plan(
    need: Need,
    depot: Depot,
    host: HostRecord,
    options: Options,
    note: Callable[[str], None],
    on_file: OnFile,
    work: Path,
) -> BuildPlan:
    request, folder = need.request, depot.layout.toolchains
    toolchain = choose_toolchain(
        need.cuda, host, request.gpus, driver=request.driver, folder=folder, work=work, on_file=on_file
    )
    note(f"nvcc {toolchain.nvcc.version}: {toolchain.reason}; host side by {toolchain.host_side}.")
    trees = obtain_sources(need.sources, depot.layout.upstreams, on_file)
    return prepare(trees, request.selection, request.gpus, request.platform, toolchain, depot, options, on_file)
