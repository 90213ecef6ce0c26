"""What flashdepot itself, and upstream's source build, can offer: from the depot, or by compiling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from flashdepot.build.schedule import Capacity
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError
from flashdepot.facts.gpus import choose_sass, codes_of
from flashdepot.host import with_tools
from flashdepot.host.surroundings import usable_cores, usable_memory
from flashdepot.kernels import default_family, oldest_gpu, unproven_code
from flashdepot.model.candidate import Candidate, Judged, Origin, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Reasons, verdict_of
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.manifest import Manifest, untested_of
from flashdepot.model.request import AnyCuda, LibraryRequest, Need
from flashdepot.model.selection import Selection
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import FLASH_ATTN, OURS, PIP, platform_tag
from flashdepot.resolve.library import resolve_library
from flashdepot.resolve.own_wheel_name import wheel_name, wheel_tag
from flashdepot.resolve.rules import judge, matches
from flashdepot.resolve.times import build_seconds, install_seconds, pack_seconds
from flashdepot.toolchain.choose import OLDER_CUDA, asks_machine, foresee_toolchain
from flashdepot.toolchain.targets import TARGETS
from flashdepot.toolchain.wheels import provided_version

_TESTED = Platform("linux", "x86_64")
"""Where flashdepot's own builds have been seen to work."""

_UPSTREAM_TARGETS = {True: 4, False: 2}
"""Architectures that upstream's setup.py builds for by default: with an nvcc from 12.8 on, and before."""


class OwnWheels:
    """What flashdepot and upstream's source build can offer for requests of one machine.

    :param library: what our library must have; its upstream and architectures follow from each request.
    :param host: where compiling would happen; what a record without builds in mind lacks is this machine's.
    :param capacity: what of it a build may use.
    """

    def __init__(
        self, library: LibraryRequest, host: HostRecord, depot: Depot, capacity: Capacity | None = None
    ) -> None:
        self.library, self.host, self._depot = library, host, depot
        self.capacity = capacity or Capacity.beside_others(host.cores or usable_cores(), host.memory or usable_memory())
        self._needs: dict[object, Need | None] = {}
        self._there: dict[object, tuple[Origin, Manifest] | None] = {}

    def equipped(self) -> HostRecord:
        """The machine with its CUDA toolkits and compilers, which a record without builds in mind has not looked for."""
        return self.host if self.host.cores else with_tools(self.host)

    def candidates(self, request: WheelRequest) -> Iterator[Judged]:
        """What the depot or a remote has that serves, else what a build would give; pip's build where it was asked for."""
        need = self.need(request)
        if need is None:
            return
        if request.allows(OURS):
            found = self._found(request, need)
            yield _stored(request, need, *found) if found else _to_build(request, need, self)
        if request.allows(PIP):
            yield _by_pip(request, need, self)

    def need(self, request: WheelRequest) -> Need | None:
        """What our library must be and have to serve a request; ``None`` where there is no source for it."""
        key = _what_a_library_depends_on(request)
        if key not in self._needs:
            self._needs[key] = self._understood(request)
        return self._needs[key]

    def _understood(self, request: WheelRequest) -> Need | None:
        version = _version(request, self.library) if request.distribution == FLASH_ATTN else None
        if version is None:
            return None
        facts = request.facts
        usable = tuple(gpu for gpu in facts.gpus if gpu >= oldest_gpu())
        platform = facts.platform or self.host.platform
        target = replace(self.host, platform=platform, libc=facts.libc, driver=facts.driver, gpus=())
        asked = replace(self.library, upstream=version, arch=usable or None)
        return resolve_library(asked, target, self._depot, for_wheel=True)

    def _found(self, request: WheelRequest, need: Need) -> tuple[Origin, Manifest] | None:
        """The library that serves, and whether the depot has it or a remote; each is asked once."""
        key = _what_a_library_depends_on(request)
        if key not in self._there:
            if (stored := self._depot.find(need.request).taken) is not None:
                self._there[key] = (Origin.DEPOT, stored)
            else:
                offered = self._depot.remotes.first(lambda remote: remote.offers(need.request))
                self._there[key] = (Origin.REMOTE, offered[0].summary) if offered else None
        return self._there[key]


def _what_a_library_depends_on(request: WheelRequest) -> object:
    facts = request.facts
    return request.distribution, request.version, facts.platform, facts.libc_name, facts.libc, facts.gpus, facts.driver


def _version(request: WheelRequest, library: LibraryRequest) -> str | None:
    """The upstream to make a library of: the version asked for if there is a source of it, else the project's."""
    if request.version:
        return next(
            (v for v in reversed(default_family().sources.known_versions()) if matches(request.version, v)), None
        )
    return library.upstream or default_family().sources.default_version()


def _stored(request: WheelRequest, need: Need | None, origin: Origin, manifest: Manifest) -> Judged:
    wheel = _our_wheel(
        manifest.upstream.version,
        manifest.toolchain.cuda,
        wheel_tag(manifest).rpartition("-")[2],
        manifest.sass,
    )
    packed = sum(file.size for file in manifest.files if file.path.startswith("lib/shared/"))
    seconds = pack_seconds(packed) + (manifest.size / request.bandwidth if origin is Origin.REMOTE else 0)
    size = manifest.size if origin is Origin.REMOTE else 0
    known = {"need": need, "recipe_key": manifest.recipe_key, "size": size}
    return _judged(request, wheel, (), origin, wheel_name(manifest), seconds, **known)


def _to_build(request: WheelRequest, need: Need, ours: OwnWheels) -> Judged:
    wanted = need.request.gpus
    reasons = list(_build_place(request.facts, ours.host))
    cuda, sass = provided_version(), wanted
    try:
        driver, asked = request.facts.driver, asks_machine(need.cuda, ours.host.platform, request.facts.driver)
        machine = ours.equipped() if asked else ours.host
        foreseen = foresee_toolchain(need.cuda, machine, wanted, driver=driver)
        toolkit, cuda = foreseen.toolkit, foreseen.cuda
        if foreseen.release and need.cuda is AnyCuda.AUTO:  # for commands that name no driver
            need = replace(need, cuda=OLDER_CUDA)
        sass = choose_sass(wanted, cuda, toolkit.codes if toolkit and toolkit.codes else codes_of(cuda))
    except FlashdepotError as error:
        reasons.append(Diagnosis.misfit("toolchain", f"CUDA {cuda}", "no usable toolchain", error.message, error.hint))
    wheel = _our_wheel(need.request.upstream.version, cuda, _tag(ours.host, request.facts), sass)
    seconds = _build_seconds(need.request.selection, len(sass), "shared", ours, request)
    untested = untested_of(unproven_code(need.request.selection, wanted))
    name = f"flash-attn {wheel.version}, built here for {', '.join(a.sm for a in sass)}"
    name += f" (untested: {untested})" if untested else ""
    return _judged(request, wheel, tuple(reasons), Origin.OURS, name, seconds, need=need)


def _by_pip(request: WheelRequest, need: Need, ours: OwnWheels) -> Judged:
    """What 'pip install flash-attn' makes without a wheel: all units, for upstream's own list of architectures."""
    facts, host = request.facts, ours.equipped()
    torch_cuda = facts.torch.cuda if facts.torch else None
    fitting = [t for t in host.toolkits if torch_cuda is not None and t.version.major == torch_cuda.major]
    cuda = fitting[0].version if fitting else torch_cuda or Version("12.8")
    reasons = [] if host.platform == facts.platform else list(_build_place(facts, host))
    if not fitting and torch_cuda is not None:
        found = ", ".join(f"CUDA {t.version}" for t in host.toolkits) or "no CUDA toolkit"
        text = f"It needs an nvcc of CUDA {torch_cuda.major}, torch's, and this machine has {found}."
        fix = f"Install a CUDA {torch_cuda.major} toolkit."
        reasons.append(Diagnosis.misfit("toolchain", f"CUDA {torch_cuda.major}", found, text, fix))
    if not host.compilers:
        text, fix = "No C++ compiler was found, and nvcc cannot compile without one.", "Install one, such as g++."
        reasons.append(Diagnosis.misfit("toolchain", "a C++ compiler", "none", text, fix))
    targets = _UPSTREAM_TARGETS[cuda >= Version("12.8")]
    sass = ("80", "90", "100", "120")[:targets]
    tag = str(facts.python) if facts.python else "py3"
    version = need.request.upstream.version
    wheel = PublishedWheel(FLASH_ATTN, version, str(cuda), "", None, tag, tag if facts.python else "none",
        _tag(host, facts), PIP, sass=sass)  # fmt: skip
    seconds = _build_seconds(need.request.selection, targets, "native", ours, request)
    return _judged(request, wheel, tuple(reasons), Origin.PIP, f"flash-attn {version}, built by pip", seconds)


def _build_seconds(
    selection: Selection, architectures: int, front_end: str, ours: OwnWheels, request: WheelRequest
) -> float:
    compiled = build_seconds(selection, architectures, front_end, ours.capacity, request.bandwidth)
    return compiled + install_seconds(0)


def _build_place(facts: Environment, host: HostRecord) -> Iterator[Diagnosis]:
    """Whether that machine can compile for the platform that was asked for, and has been seen to."""
    wanted = str(facts.platform or host.platform)
    if wanted not in map(str, TARGETS):
        text = f"It would be compiled on this machine, {host.platform}, and is needed on {wanted}."
        yield Diagnosis.misfit("build-place", str(host.platform), wanted, text, f"Build it on Linux: --target {wanted}")
    elif host.libc_name == "musl":
        text = "NVIDIA's compiler needs the GNU C library, and this system has musl."
        yield Diagnosis.misfit("build-place", "glibc", "musl", text, "Use a distribution with the GNU C library.")
    elif host.platform != _TESTED and host.platform.system != "windows":  # there the toolchain is refused
        text = f"Builds on {host.platform} are untested; those on {_TESTED} are tested."
        yield Diagnosis.uncertain("build-place", str(_TESTED), wanted, text, "flashdepot get --profile quick tries it")


def _tag(host: HostRecord, facts: Environment) -> str:
    platform = facts.platform or host.platform
    row = next((row for row in TARGETS if row.platform == platform), None)
    return platform_tag(platform, row.libc_floor if row else None)


def _our_wheel(version: str, cuda: Version, tag: str, sass: tuple[Architecture, ...]) -> PublishedWheel:
    codes = tuple(str(a) for a in sass)
    return PublishedWheel(FLASH_ATTN, version, str(cuda), "", None, "py3", "none", tag, OURS, sass=codes)


def _judged(
    request: WheelRequest,
    wheel: PublishedWheel,
    reasons: Reasons,
    origin: Origin,
    name: str,
    seconds: float,
    **known: Any,
) -> Judged:
    found = (*judge(request, wheel), *reasons)
    candidate = Candidate(origin, name, wheel, seconds, size_known=True, **known)
    return Judged(candidate, verdict_of(found), found)
