"""From a request to a library that is built for it."""

from __future__ import annotations

import time

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
from flashdepot.toolchain.choose import choose_toolchain


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
    request = need.request
    if host.platform != request.platform:
        raise IncompatibleError(
            f"Nothing stored serves {request.platform}, and this machine, {host.platform}, cannot build for it.",
            hint=f"Run the same command on a {request.platform} machine, and share its depot.",
        )

    def on_file(name: str) -> None:
        progress.note(f"Fetching {name}.")

    toolchain = choose_toolchain(
        need.cuda,
        host,
        request.gpus,
        driver=request.driver,
        folder=depot.layout.toolchains,
        on_file=on_file,
    )
    progress.note(
        f"nvcc {toolchain.nvcc.version}: {toolchain.reason}; host compiler {toolchain.cxx.kind} {toolchain.cxx.version}."
    )
    trees = obtain_sources(need.sources, depot.layout.upstreams)
    plan = prepare(trees, request.selection, request.gpus, host.platform, toolchain, depot, options, on_file)
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
