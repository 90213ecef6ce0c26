"""What making a library takes: before anything is fetched as it usually is, and exactly when the compilers are there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from flashdepot.build.library import BuildPlan, Options
from flashdepot.build.local import reserve
from flashdepot.build.schedule import Capacity, Outlook, foresee
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.events import Alternative, Fetch, Forecast
from flashdepot.families import family_of
from flashdepot.host.memory import usable_cores, usable_memory
from flashdepot.model.action import Sides
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.selection import PROFILES, Selection, Unit, select
from flashdepot.resolve.library import Need
from flashdepot.resolve.times import usual_jobs
from flashdepot.toolchain.archives import is_release_provided
from flashdepot.toolchain.choose import foresee_toolchain
from flashdepot.toolchain.nvcc import inspect, named_root
from flashdepot.toolchain.wheels import is_provided
from flashdepot.toolchain.zig import compiling_version, is_zig_provided, preprocessing_version

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
    """What must be fetched before the compilers can be asked; raises what :func:`foresee_toolchain` raises."""
    folder = depot.layout.toolchains
    found = []
    request = need.request
    if isinstance(need.cuda, Path):
        cuda = inspect(named_root(need.cuda)).version
    else:
        foreseen = foresee_toolchain(need.cuda, host, request.gpus, driver=request.driver)
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


def usual(need: Need, fetched: tuple[Fetch, ...], limits: Limits) -> Forecast:
    """What it usually takes when nothing was compiled before, and some things must be fetched first."""
    selection = need.request.selection
    return _forecast(need, selection.units, _outlook(selection, need, limits), limits, fetched)


def exact(need: Need, plan: BuildPlan, outlook: Outlook, limits: Limits) -> Forecast:
    """What it takes by the compilers that are here, and by what was compiled before."""
    actions = plan.actions()
    sides = Sides.of(actions)
    left = {action.unit for action in actions if action.unit is not None and action.name in outlook.jobs}
    # Around device code that is to be made there is a host side in any case.
    around = sum(
        action.name in sides.host & outlook.jobs and not outlook.jobs.intersection(action.needs.values())
        for action in actions
    )
    return _forecast(need, left, outlook, limits, None, around)


def _forecast(
    need: Need,
    left: Collection[Unit],
    outlook: Outlook,
    limits: Limits,
    fetched: tuple[Fetch, ...] | None,
    host_sides: int = 0,
) -> Forecast:
    units = need.request.selection.units
    disk = (len(left) + host_sides) * len(need.request.gpus) * _KEPT
    disk += sum(fetch.unpacked or fetch.size + _SOURCE_UNPACKED for fetch in fetched or ())
    return Forecast(
        units=len(units),
        compiled=len(units) - len(left),
        jobs=max(1, outlook.at_once),
        seconds=outlook.seconds,
        memory=outlook.peak,
        memory_limit=outlook.memory,
        disk=disk,
        fetches=fetched or (),
        # What they take is known for device code that is to be made; where there is none, they save little.
        alternatives=tuple(_alternatives(need, outlook.seconds, limits)) if left else (),
        is_exact=fetched is None,
        host_sides=host_sides,
    )


def _alternatives(need: Need, seconds: float, limits: Limits) -> Iterator[Alternative]:
    """Profiles that are contained in what is asked for, and take less than half the time."""
    asked = need.request.selection
    for name, profile in PROFILES.items():
        with contextlib.suppress(UsageError):  # nothing of it is in there
            less = select(profile, asked.units)
            takes = _outlook(less, need, limits).seconds
            if takes < seconds / 2:
                yield Alternative(f"--profile {name}", takes)


def _outlook(selection: Selection, need: Need, limits: Limits) -> Outlook:
    jobs = usual_jobs(selection, len(need.request.gpus), Options().front_end)
    return foresee(jobs, (), _capacity(limits))


def _capacity(limits: Limits) -> Capacity:
    if limits.farm is not None:
        return Capacity(max(1, min(limits.jobs or limits.farm.slots, limits.farm.slots)), limits.farm.memory)
    memory = usable_memory()
    return Capacity(limits.jobs or usable_cores(), limits.memory or memory - reserve(memory))
