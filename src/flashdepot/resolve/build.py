"""From a request to a library that is built for it, and what that takes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from flashdepot.build.library import BuildPlan, Options, build_library, compile_afresh, foresee_build, prepare
from flashdepot.build.schedule import HOST_SIDE, Capacity, Job, Outlook, foresee
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.events import Alternative, BuildProgress, Download, Events, Fetch, Forecast
from flashdepot.fit.requests import unmet
from flashdepot.host.probe import this_platform
from flashdepot.host.surroundings import busy_load, usable_cores, usable_memory
from flashdepot.kernels import family_of, obtain_sources
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import Sides
from flashdepot.model.request import Need
from flashdepot.model.selection import PROFILES, Selection, Unit, select
from flashdepot.resolve.consent import require_consent
from flashdepot.resolve.library import LibraryResult
from flashdepot.resolve.times import making_seconds, usual_jobs
from flashdepot.toolchain.archives import is_release_provided
from flashdepot.toolchain.choose import Foreseen, foresee_toolchain, provide_toolchain, require_compiling
from flashdepot.toolchain.targets import TARGETS
from flashdepot.toolchain.wheels import pinned_toolkit
from flashdepot.toolchain.zig import compiling_version, first_link_seconds, pinned_zig, preprocessing_version

_MB = 10**6
_NVCC = Fetch("NVIDIA's compiler", 104 * _MB, 279 * _MB)
_ZIG = Fetch("zig", 83 * _MB, 290 * _MB)
_OLDER_ZIG = Fetch("an older zig, with which nvcc 12 preprocesses", 79 * _MB, 250 * _MB)
_OTHER_NVCC = Fetch("NVIDIA's compiler of another CUDA, from its archives", 80 * _MB, 190 * _MB)
"""The wheels of nvcc 13.0.88 and of the pinned zigs, and their folders in a depot, measured on 2026-11-22. Of NVIDIA's
archives what the same programs of 12.4 take in Debian's package."""

_SOURCE_UNPACKED = 27 * _MB
_KEPT = 2 * _MB
"""Of a unit for one architecture: 40 MB of a shared library, 46 MB of a static one, and 46 MB of objects for 72 units."""


@dataclasses.dataclass(frozen=True)
class Making:
    """The library of exactly the recipe that a machine gives a need: what it takes, and making it.

    :param host: the machine that compiles.
    """

    need: Need
    depot: Depot
    host: HostRecord
    limits: Limits
    options: Options = Options()  # noqa: RUF009  (nobody can change it)

    @cached_property
    def compilers(self) -> Foreseen:
        """Which nvcc it will be."""
        request, platform, targets = self.need.request, str(self.need.request.platform), [str(row) for row in TARGETS]
        if platform not in targets:
            raise IncompatibleError(
                f"Nothing is built for {platform}: there are {', '.join(targets)}.",
                hint=f"Build for the system that it should run on: --target {targets[0]}",
            )
        trusted = (remote.trust.keys or remote.settings.unsigned for remote in self.depot.remotes.usable())
        if not any(trusted) and not any(self.depot.actions.files()):  # nobody has device code
            require_compiling(self.host.platform)
        return foresee_toolchain(self.need.cuda, self.host, request.gpus, driver=request.driver, host_side=True)

    @cached_property
    def fetches(self) -> tuple[Fetch, ...]:
        """What must be fetched before the compilers can be asked."""
        nvcc, platform, folder, found = self.compilers, self.host.platform, self.depot.layout.toolchains, list[Fetch]()
        if nvcc.release:
            found += [] if is_release_provided(nvcc.release, platform, folder) else [_OTHER_NVCC]
        elif nvcc.toolkit is None and not pinned_toolkit(platform).is_there(folder):
            found.append(_NVCC)
        zigs = dict.fromkeys((compiling_version(), preprocessing_version(nvcc.cuda)))
        fetched = zip(zigs, (_ZIG, _OLDER_ZIG), strict=False)
        found += [fetch for version, fetch in fetched if not pinned_zig(platform, version).is_there(folder)]
        for family, spec in self.need.sources.items():
            if size := family_of(family).sources.to_fetch(spec, self.depot.layout.upstreams):
                found.append(Fetch(f"the source of {family_of(family).title}", size))
            found.extend(family_of(family).to_fetch(platform, folder))
        return tuple(found)

    @cached_property
    def first_link(self) -> float:
        """Seconds that only the first link for a target takes."""
        target = next(row for row in TARGETS if row.platform == self.need.request.platform)
        return first_link_seconds(self.host.platform, self.depot.layout.toolchains, target.zig)

    def foresee(self, made: Collection[Unit] = ()) -> Forecast | Manifest:
        """What :meth:`make` would do, when the device code of some units has been made; nothing is fetched or compiled."""
        if self.fetches:
            return self.usual(made)
        with self.depot.workspace() as work:
            plan = self._plan(BuildProgress(), work)
            if (stored := self.depot.load_intact(plan.recipe.key)) is not None:
                return stored
            exact = self._exact(plan, foresee_build(plan, self.depot, self.limits))
            return min(exact, self.usual(made), key=lambda one: one.seconds) if made else exact

    def make(self, events: Events) -> LibraryResult:
        """The library: stored, a remote's, or compiled now.

        :raises ConsentError: before anything is fetched, or else compiled, when that takes long and nobody has said yes.
        :raises MissingToolError: when the machine lacks a tool, an architecture or space.
        :raises IncompatibleError: when what can be built here does not run on the host of the request.
        :raises CompileError: when a compiler refuses.
        :raises NetworkError: when source or toolchain must be fetched and cannot be.
        """
        depot, limits, request = self.depot, self.limits, self.need.request
        if self.fetches:
            require_consent(self.usual(), limits, events)
        with events.building() as progress, depot.workspace() as work:
            plan, units = self._plan(progress, work), len(request.selection.units)
            key, fetching = plan.recipe.key, _Fetching(progress)
            stored = depot.load_intact(key)
            if had := LibraryResult.had(stored, depot, lambda one: one.fetch_recipe(depot, key, fetching), units):
                return had

            def agreed(outlook: Outlook) -> None:
                if not self.fetches:
                    require_consent(self._exact(plan, outlook), limits, events)

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

    def foresee_units(self, units: Collection[str]) -> Forecast:
        """What :meth:`compile_units` usually takes."""
        request = self.need.request
        chosen = replace(request.selection, units=frozenset(u for u in request.selection.units if u.name in units))
        less = dataclasses.replace(self, need=replace(self.need, request=replace(request, selection=chosen)))
        forecast = less.usual()
        return replace(forecast, seconds=forecast.seconds - less.first_link)  # nothing is linked

    def compile_units(self, units: Collection[str], events: Events) -> tuple[ActionRecord, ...]:
        """Compile some units of the request as :meth:`make` would, whatever the depot or a remote has of them."""
        require_consent(self.foresee_units(units), self.limits, events)
        with events.building() as progress, self.depot.workspace() as work:
            return compile_afresh(self._plan(progress, work), units, self.depot, self.limits, progress)

    def _plan(self, progress: BuildProgress, work: Path) -> BuildPlan:
        need, request, depot, on_file = self.need, self.need.request, self.depot, progress.download
        toolchain = provide_toolchain(
            self.compilers, self.host.platform, folder=depot.layout.toolchains, work=work, on_file=on_file
        )
        progress.note(f"nvcc {toolchain.nvcc.version}: {toolchain.reason}; host side by {toolchain.host_side}.")
        trees = obtain_sources(need.sources, depot.layout.upstreams, on_file)
        gpus, platform = request.gpus, request.platform
        return prepare(trees, request.selection, gpus, platform, toolchain, depot, self.options, on_file)

    def usual(self, made: Collection[Unit] = ()) -> Forecast:
        """What it usually takes when no device code but that of ``made`` is there, and some things must be fetched first."""
        selection, source = self.need.request.selection, "is compiled for another part"
        if this_platform().system == "windows":
            made = frozenset(unit for unit in selection.units if family_of(unit.family).needs_nvcc)
            source = "must come from remotes"
        left = selection.units.difference(made)
        around = [Job(unit.name, HOST_SIDE.seconds, HOST_SIDE.peak) for unit in selection.units - left]
        outlook = self._outlook(replace(selection, units=left), around)
        return replace(self._forecast(left, outlook, self.fetches, len(around)), source=source)

    def _exact(self, plan: BuildPlan, outlook: Outlook) -> Forecast:
        """What it takes by the compilers that are here, and by what was compiled before."""
        actions = plan.actions()
        sides = Sides.of(actions)
        left = {action.unit for action in actions if action.unit is not None and action.name in outlook.jobs}
        # Around device code that is to be made there is a host side in any case.
        around = sum(
            action.name in sides.host & outlook.jobs and not outlook.jobs.intersection(action.needs.values())
            for action in actions
        )
        return self._forecast(left, outlook, None, around)

    def _forecast(
        self, left: Collection[Unit], outlook: Outlook, fetched: tuple[Fetch, ...] | None, host_sides: int = 0
    ) -> Forecast:
        units = self.need.request.selection.units
        seconds = making_seconds(outlook, len(units), is_here=self.limits.farm is None) + self.first_link
        disk = (len(left) + host_sides) * len(self.need.request.gpus) * _KEPT
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
            alternatives=tuple(self._alternatives(seconds)) if left else (),
            is_exact=fetched is None,
            host_sides=host_sides,
            load=busy_load() if self.limits.farm is None else 0.0,
        )

    def _alternatives(self, seconds: float) -> Iterator[Alternative]:
        """Profiles that are contained in what is asked for, and take less than half the time."""
        for name, profile in PROFILES.items():
            with contextlib.suppress(UsageError):  # nothing of it is in there
                less = select(profile, self.need.request.selection.units)
                takes = making_seconds(self._outlook(less), len(less.units), is_here=self.limits.farm is None)
                if takes < seconds / 2:
                    yield Alternative(f"--profile {name}", takes)

    def _outlook(self, selection: Selection, others: Sequence[Job] = ()) -> Outlook:
        jobs = usual_jobs(selection, len(self.need.request.gpus))
        return foresee([*others, *jobs], (), _capacity(self.limits))


def _capacity(limits: Limits) -> Capacity:
    if limits.farm is not None:
        return Capacity(max(1, min(limits.jobs or limits.farm.slots, limits.farm.slots)), limits.farm.memory)
    jobs = limits.jobs or usable_cores()
    return Capacity(jobs, limits.memory) if limits.memory else Capacity.next_to_others(jobs, usable_memory())


class _Fetching(Events):
    def __init__(self, progress: BuildProgress) -> None:
        self._progress = progress

    def note(self, text: str) -> None:
        """A note of the build."""
        self._progress.note(text)

    def download(self, name: str) -> AbstractContextManager[Download]:
        """A download of the build."""
        return nullcontext(self._progress.download(name))
