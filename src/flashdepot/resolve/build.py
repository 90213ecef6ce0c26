"""From a request to a library that is built for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from flashdepot.build.library import Options, build_library, prepare
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError
from flashdepot.events import BuildProgress
from flashdepot.families import obtain_sources
from flashdepot.fit.requests import unmet
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request
from flashdepot.resolve.library import LibraryResult, Need
from flashdepot.targets import TARGETS
from flashdepot.toolchain.choose import Toolchain, choose_toolchain, provide_toolchain

OnFile = Callable[[str], None]
"""Called with the name of a file before it is fetched."""


def build(
    need: Need, depot: Depot, host: HostRecord, limits: Limits, options: Options, progress: BuildProgress
) -> LibraryResult:
    """The library of exactly the recipe that this machine gives the request.

    :raises MissingToolError: when the machine lacks a tool, an architecture or space.
    :raises IncompatibleError: when what can be built here does not run on the host of the request.
    :raises CompileError: when a compiler refuses.
    :raises NetworkError: when source or toolchain must be fetched and cannot be.
    """
    started = time.monotonic()

    def on_file(name: str) -> None:
        progress.note(f"Fetching {name}.")

    with depot.workspace() as work:
        toolchain = _toolchain(need, depot, host, work, on_file)
        return _build(need, depot, toolchain, limits, options, progress, on_file, started)


def _toolchain(need: Need, depot: Depot, host: HostRecord, work: Path, on_file: OnFile) -> Toolchain:
    request, folder = need.request, depot.layout.toolchains
    if need.target is not None:
        return provide_toolchain(need.cuda, host, request.gpus, folder=folder, work=work, on_file=on_file)
    if host.platform != request.platform:
        is_target = any(row.platform == request.platform for row in TARGETS)
        raise IncompatibleError(
            f"Nothing stored serves {request.platform}, and this machine, {host.platform}, cannot build for it"
            f"{' unless that is its target' if is_target else ''}.",
            hint=f"Build for it from here: --target {request.platform}"
            if is_target
            else f"Run the same command on a {request.platform} machine, and share its depot.",
        )
    return choose_toolchain(need.cuda, host, request.gpus, driver=request.driver, folder=folder, on_file=on_file)


def _build(
    need: Need,
    depot: Depot,
    toolchain: Toolchain,
    limits: Limits,
    options: Options,
    progress: BuildProgress,
    on_file: OnFile,
    started: float,
) -> LibraryResult:
    request = need.request
    progress.note(
        f"nvcc {toolchain.nvcc.version}: {toolchain.reason}; host compiler {toolchain.cxx.kind} {toolchain.cxx.version}."
    )
    trees = obtain_sources(need.sources, depot.layout.upstreams)
    plan = prepare(trees, request.selection, request.gpus, request.platform, toolchain, depot, options, on_file)
    units = len(request.selection.units)
    if (stored := depot.load_intact(plan.recipe.key)) is not None:
        return LibraryResult("hit", stored, depot.materialise(stored), 0, units, time.monotonic() - started)
    manifest, outcome = build_library(plan, depot, limits, progress)
    compiled = sum(1 for unit in request.selection.units if unit.name in outcome.compiled)
    path = depot.materialise(manifest)
    _require_fit(request, manifest)
    return LibraryResult("built", manifest, path, compiled, units - compiled, time.monotonic() - started)


def _require_fit(request: Request, manifest: Manifest) -> None:
    if reasons := unmet(request, manifest):
        raise IncompatibleError(
            f"The library was built and is kept, but the host that it is for cannot use it: {'; '.join(reasons)}.",
            hint="Build on the oldest system that it must run on, for example in a container of that system.",
        )
