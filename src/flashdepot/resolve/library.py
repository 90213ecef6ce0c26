"""From what somebody asks to a request for one host, and from a request to a stored library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.facts.gpus import choose_architectures, newest_cuda
from flashdepot.kernels import default_family, family_of, oldest_gpu, tested_families
from flashdepot.kernels.c_layer import c_layer_digest
from flashdepot.model.host import HostRecord
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import AnyCuda, Gpus, LibraryRequest, Need, Request
from flashdepot.model.selection import Selection, select
from flashdepot.model.target import Architecture, Platform, Version

if TYPE_CHECKING:
    from flashdepot.kernels.family import Family
    from flashdepot.remotes.remote import OpenRemote

_CUDA_OF_OTHERS = 13
"""The CUDA whose drivers load what CuTe DSL's assembler writes."""


class LibraryResult(msgspec.Struct, frozen=True):
    """A library that serves: how it came (``hit``, ``fetched`` or ``built``), its manifest and folder, and its units.

    ``seconds`` of wall time is what the call took. ``workers`` say how many compiler runs each worker of a farm did.
    """

    status: str
    manifest: Manifest
    path: Path
    compiled: int = 0
    reused: int = 0
    seconds: float = 0.0
    workers: Mapping[str, int] = msgspec.field(default_factory=dict)

    @classmethod
    def had(
        cls, stored: Manifest | None, depot: Depot, fetch: Callable[[OpenRemote], Manifest | None], units: int = 0
    ) -> LibraryResult | None:
        """The stored library, else what the first remote fetches that has it; ``None`` when nobody has."""
        found = stored or depot.remotes.first(fetch)
        if found is None:
            return None
        return cls("hit" if stored else "fetched", found, depot.libraries.materialise(found), reused=units)

    def __repr__(self) -> str:
        return f"<LibraryResult {self.status}, {self.manifest!r}, in {self.path}>"


def resolve_library(wanted: LibraryRequest, host: HostRecord, depot: Depot, *, for_wheel: bool = False) -> Need:
    """Make a request concrete for one host.

    :param for_wheel: the library gets into a wheel, which is the Python package of the default family.
    :raises UsageError: for an upstream or a selection that is not known, or a wheel without its package's family.
    :raises IncompatibleError: for a GPU that the kernels cannot run on, or that no family asked for has kernels for.
    :raises NetworkError: when an upstream must be checked and the network is not there.
    """
    package = default_family()
    if for_wheel and wanted.families is not None and package.name not in wanted.families:
        raise UsageError(
            f"A wheel cannot have only {', '.join(sorted(wanted.families))}: its Python package is that of {package.title}, "
            "and calls that family for what the others lack.",
            hint="Ask for both: --families all",
        )
    architectures = choose_architectures(wanted.arch or Gpus.NATIVE, host, oldest_gpu())
    platform = wanted.target or host.platform
    here = platform == host.platform
    names, notes = _asked(wanted, architectures.wanted, platform, host)
    families, left_out = _serving(names, architectures.wanted)
    named = {names[0]: wanted.upstream} if wanted.upstream else {}
    sources = {family.name: named.get(family.name) or family.sources.default_version() for family in families}
    known = {f.name: f.sources.identify(sources[f.name], depot.layout.upstreams) for f in families}
    gpus = architectures.wanted
    # A family that nobody named is there only for the GPUs that it is tested on.
    meant = [f for f in families if wanted.families is not None or f is package]
    served = {f.name: gpus if f in meant else [gpu for gpu in gpus if f.is_tested(gpu)] for f in families}
    there = (u for f in families for u in known[f.name].units if any(f.runs(u, gpu) for gpu in served[f.name]))
    selection = select(wanted.selected, frozenset(there))
    features = frozenset().union(*(source.features for source in known.values()))
    selection = Selection(selection.units, selection.features & features)
    cuda, compiler = wanted.cuda or AnyCuda.AUTO, None
    if isinstance(cuda, Path):
        from flashdepot.toolchain.nvcc import named_compiler  # noqa: PLC0415  (starts a program, which a hit never does)

        compiler = named_compiler(cuda)
    request = Request(
        upstreams={family: known[family].id for family in selection.families},
        selection=selection,
        platform=platform,
        gpus=architectures.wanted,
        driver=host.driver if here else None,
        libc=host.libc if here else None,
        libc_name=host.libc_name if here else None,
        cuda_major=cuda.major if isinstance(cuda, Version) else None,
        c_layer=c_layer_digest(),
        compiler=compiler,
    )
    return Need(
        request,
        {family: sources[family] for family in selection.families},
        cuda,
        " ".join(filter(None, (architectures.note, *left_out, *notes, *_untested(families, served)))),
    )


def _asked(
    wanted: LibraryRequest, gpus: Sequence[Architecture], platform: Platform, host: HostRecord
) -> tuple[list[str], tuple[str, ...]]:
    """The families that are named; else the default one, and with ``full`` those tested on some of the GPUs.

    The default one comes first. A family that this machine cannot compile is left out, and a sentence says so.
    """
    if wanted.families is not None:
        return sorted(wanted.families), ()
    package = default_family()
    if not wanted.is_all or not _may_have_others(wanted, platform, host):
        return [package.name], ()
    tested = [family for family in tested_families(gpus) if family is not package]
    notes = [
        f"{family.title} is left out: it cannot be compiled by this Python on {host.platform}."
        for family in tested
        if not family.compiles_here(host.platform)
    ]
    return [package.name, *(f.name for f in tested if f.compiles_here(host.platform))], tuple(notes)


def _untested(families: Iterable[Family], served: Mapping[str, Sequence[Architecture]]) -> Iterator[str]:
    for family in families:
        found = [gpu.dotted for gpu in served[family.name] if not family.is_tested(gpu) and not family.lacks(gpu)]
        if found:
            yield (
                f"{family.title} for compute capability {', '.join(found)} is untested: its kernels have run on no such GPU yet."
            )


def _may_have_others(wanted: LibraryRequest, platform: Platform, host: HostRecord) -> bool:
    """Whether families may join that nobody named: those have code for drivers of CUDA 13, and own no changed source."""
    if wanted.upstream is not None and wanted.upstream not in default_family().sources.known_versions():
        return False
    if isinstance(wanted.cuda, Version) and wanted.cuda.major < _CUDA_OF_OTHERS:
        return False
    if platform != host.platform or host.driver is None:
        return True
    served = newest_cuda(host.driver, platform.system)
    return served is not None and served.major >= _CUDA_OF_OTHERS


def _serving(asked: Sequence[str], gpus: Sequence[Architecture]) -> tuple[list[Family], tuple[str, ...]]:
    """The families that have kernels for some of the GPUs, and a sentence about each other one."""
    families = [family_of(name) for name in asked]
    lacks = {family.name: [family.lacks(gpu) for gpu in gpus] for family in families}
    serving = [family for family in families if not all(lacks[family.name])]
    for place, gpu in enumerate(gpus):
        if all(lacks[family.name][place] for family in families):
            why = "; ".join(f"{family.title} {lacks[family.name][place]}" for family in families)
            raise IncompatibleError(
                f"There are no kernels for compute capability {gpu.dotted} in the families asked for: {why}.",
                hint=f"Add the one that serves every GPU: --families {default_family().name}, or all",
            )
    left_out = [f"{f.title} is left out: it {lacks[f.name][0]}." for f in families if f not in serving]
    return serving, tuple(left_out)


def most_of(need: Need, depot: Depot) -> Manifest | None:
    """Of the stored libraries that serve the host of a request, the one with the most kernels; ``None`` without any.

    For somebody who named no selection, and has built a small library: what of ``full`` it lacks does not matter.
    """
    request = need.request
    for manifest in sorted(depot.artifacts.manifests(), key=lambda m: (-len(m.selection.units), m.recipe_key)):
        upstreams = {family: source for family, source in request.upstreams.items() if family in manifest.upstreams}
        less = replace(request, selection=manifest.selection, upstreams=upstreams)
        if (found := depot.find(less).taken) is not None:
            return found
    return None
