"""From a question to a plan: all that there is to answer it, flashdepot's own offers too, and what would change the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.build.schedule import Capacity
from flashdepot.catalog import CATALOG_FOLDER, load_catalog
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError
from flashdepot.facts import default_cuda
from flashdepot.facts.gpus import choose_sass, codes_of
from flashdepot.host import with_tools
from flashdepot.host.surroundings import usable_cores, usable_memory
from flashdepot.kernels import default_family, oldest_gpu, untested_code
from flashdepot.model.candidate import Candidate, Judged, Origin, Plan, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Reasons, verdict_of
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.manifest import Manifest, untested_of
from flashdepot.model.request import AnyCuda, LibraryRequest, Need
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import COMMUNITY, FLASH_ATTN, INDEX, OFFICIAL, OURS, platform_tag, version_key
from flashdepot.resolve.decide import decide, never_fits, takable
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.library import resolve_library
from flashdepot.resolve.own_wheel_name import wheel_name, wheel_tag
from flashdepot.resolve.rules import judge, matches
from flashdepot.resolve.times import BANDWIDTH, build_seconds, pack_seconds
from flashdepot.toolchain.choose import OLDER_CUDA, asks_machine, foresee_toolchain
from flashdepot.toolchain.targets import TARGETS
from flashdepot.toolchain.wheels import provided_version


def plan_for(
    request: WheelRequest, library: LibraryRequest, machine: HostRecord, depot: Depot, on_note: Callable[[str], None]
) -> Plan:
    """What there is for a request: stored, a remote's, published, and what could be built with each CUDA.

    :param library: what our library must have.
    :param machine: where it would be compiled.
    :param on_note: called with a sentence about what is wrong with the catalog.
    """
    catalog = load_catalog(depot.root / CATALOG_FOLDER)
    for note in catalog.notes:
        on_note(note)
    ours = OwnWheels(library, machine, depot)

    def own(wanted: WheelRequest) -> tuple[Judged, ...]:
        return () if never_fits(wanted) else tuple(found for kind in KINDS for found in kind(wanted, ours))

    def again(other: WheelRequest) -> tuple[Judged, ...]:
        return takable(other, catalog.wheels, own(other))

    return replace(decide(request, catalog.wheels, own(request)), again=again)


def _indexed(request: WheelRequest, ours: OwnWheels) -> Iterator[Judged]:
    need = ours.need(request) if any(source.startswith(INDEX) for source in request.sources) else None
    if need is not None:
        from flashdepot.resolve.own_indexes import index_candidates  # noqa: PLC0415  (few name one)

        every = need.request.selection
        only = replace(every, units=frozenset(unit for unit in every.units if unit.family == DEFAULT_FAMILY))
        # Of families that nobody named only the default one will do, where there is no wheel with all.
        yield from index_candidates(request, (every, only) if ours.library.families is None else (every,))


KINDS: Sequence[Callable[[WheelRequest, OwnWheels], Iterable[Judged]]] = (
    lambda request, ours: ours.candidates(request),
    _indexed,
)
"""Every kind of candidate but the published wheels, which the catalog lists: each judges what it has for a request."""


_FACTS = frozenset(NamedFacts.__struct_fields__)
_UNCERTAIN = "uncertain"


class Help(msgspec.Struct, frozen=True):
    """Options that change an answer, and the answer then: how many candidates fit, and the first of them.

    ``options`` are by the names of the fields that they fill; ``None`` takes one back.
    """

    options: Mapping[str, Any]
    fitting: int
    first: Judged


def helps(plan: Plan) -> tuple[Help, ...]:
    """Each change of one thing that gives a better answer than there is, the least time until usable first."""
    again = plan.again
    if again is None:
        return ()
    now, found = plan.chosen, []
    changes = [{"allow": (_UNCERTAIN,)}] if plan.uncertain and now is None else []
    changes += [_options(m.reason.id, m.best.candidate.wheel, m.reason.expected, plan.facts) for m in plan.near_misses]
    for options in (*filter(None, changes), *_of_another_torch(plan, again)):
        then = again(changed(plan.request, options))
        if then and (now is None or (now.candidate.origin.compiles and not then[0].candidate.origin.compiles)):
            found.append(Help(options, len(then), then[0]))
    found.sort(key=lambda one: (one.first.verdict.rank, one.first.candidate.seconds))
    unique = {tuple(sorted((name, str(value)) for name, value in one.options.items())): one for one in reversed(found)}
    return tuple(one for one in found if one in unique.values())


def _of_another_torch(plan: Plan, again: Callable[[WheelRequest], Sequence[Judged]]) -> Iterator[dict[str, Any]]:
    """Another torch, where the one that is there can never serve, or there is none.

    The newest for which there is a wheel that may be taken, else one of other people, else the newest that a build serves.
    """
    broken = {reason.id for judged in plan.misfits for reason in judged.broken}
    if "torch-with-cuda" not in broken or not plan.facts.gpus:
        return
    wheels = sorted(plan.published, key=lambda wheel: plan.request.allows(wheel.source))  # the name of these counts
    built = {(version_key(wheel.torch), wheel.cuda.partition(".")[0]): wheel for wheel in wheels if wheel.torch}
    newest = [_options("torch", built[key], "", plan.facts) for key in sorted(built, reverse=True)]
    build = None
    for allow in ({}, {"allow": (COMMUNITY,)}):
        for options in ({**torch, **allow} for torch in newest):
            found = again(changed(plan.request, options))
            if found and not found[0].candidate.origin.compiles:
                yield options
                return
            build = build or (options if found else None)
    if build is not None:
        yield build


def changed(request: WheelRequest, options: Mapping[str, Any]) -> WheelRequest:
    """A request with some options of ``resolve`` in place of what they were."""
    facts = {name: value for name, value in options.items() if name in _FACTS}
    if facts:
        request = replace(request, facts=override(request.facts, NamedFacts(**facts)))
    if (allowed := options.get("allow")) is not None:
        sources = request.sources | ({COMMUNITY} if COMMUNITY in allowed else set())
        request = replace(request, sources=sources, allow_uncertain=request.allow_uncertain or _UNCERTAIN in allowed)
    return replace(request, version=options.get("version", request.version))


def _options(rule: str, wheel: PublishedWheel, wants: str, facts: Environment) -> dict[str, Any]:
    """What would have to be different for a wheel that breaks only one rule; empty where no option says that."""
    if rule == "source":
        return {"allow": (COMMUNITY,)} if wheel.source not in {OURS, OFFICIAL} else {}
    if rule == "version":
        return {"version": wheel.version.partition("+")[0]}
    if rule == "torch" and wheel.torch:
        return {"torch": wheel.torch, "torch_cuda": _torch_cuda(wheel, facts), "cxx11_abi": None}
    if rule == "cuda" and wheel.cuda:
        return {"torch_cuda": _full(wheel.cuda)}
    if rule == "cxx11-abi" and wheel.cxx11_abi is not None:
        return {"cxx11_abi": wheel.cxx11_abi}
    names = {"python": "python_tag", "libc": "glibc", "driver": "driver"}
    if rule == "python":
        wants = wheel.python
    if rule == "libc" and not wants[:1].isdecimal():
        return {}  # the other C library altogether
    return {names[rule]: wants} if rule in names and wants else {}


def _torch_cuda(wheel: PublishedWheel, facts: Environment) -> str | None:
    """The CUDA to name next to a torch; ``None`` where PyPI's build of it has one that the wheel takes."""
    minor = ".".join(wheel.torch.split(".")[:2])
    usual = default_cuda(minor) if facts.platform == Platform("linux", "x86_64") else None
    if not wheel.cuda or (usual is not None and str(usual.major) == wheel.cuda.partition(".")[0]):
        return None
    return _full(wheel.cuda)


def _full(cuda: str) -> str:
    """A release of CUDA where a wheel names only a major version: any of it will do."""
    return cuda if "." in cuda else {"11": "11.8", "12": "12.8"}.get(cuda, f"{cuda}.0")


_TESTED = Platform("linux", "x86_64")
"""Where flashdepot's own builds have been seen to work."""


class OwnWheels:
    """What flashdepot can offer for requests of one machine: what the depot or a remote has, or a build would give.

    :param library: what our library must have; its upstream and architectures follow from each request.
    :param host: where compiling would happen; what a record without builds in mind lacks is this machine's.
    :param capacity: what of it a build may use.
    """

    def __init__(
        self, library: LibraryRequest, host: HostRecord, depot: Depot, capacity: Capacity | None = None
    ) -> None:
        self.library, self.host, self._depot = library, host, depot
        self.capacity = capacity or Capacity.next_to_others(
            host.cores or usable_cores(), host.memory or usable_memory()
        )
        self._needs: dict[object, Need | None] = {}
        self._there: dict[object, tuple[Origin, Manifest] | None] = {}

    def candidates(self, request: WheelRequest) -> Iterator[Judged]:
        """What the depot or a remote has that serves, else what a build would give."""
        need = self.need(request)
        if need is not None and request.allows(OURS):
            found = self._found(request, need)
            yield _stored(request, need, *found) if found else _to_build(request, need, self)

    def need(self, request: WheelRequest) -> Need | None:
        """What our library must be and have to serve a request; ``None`` where there is no source for it."""
        key, facts = _what_a_library_depends_on(request), request.facts
        if key not in self._needs:
            version = _version(request, self.library) if request.distribution == FLASH_ATTN else None
            platform = facts.platform or self.host.platform
            target = replace(self.host, platform=platform, libc=facts.libc, driver=facts.driver, gpus=())
            usable = tuple(gpu for gpu in facts.gpus if gpu >= oldest_gpu())
            asked = replace(self.library, upstream=version, arch=usable or None)
            self._needs[key] = resolve_library(asked, target, self._depot, for_wheel=True) if version else None
        return self._needs[key]

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
        manifest.upstream.version, manifest.toolchain.cuda, wheel_tag(manifest).rpartition("-")[2], manifest.sass
    )
    packed = sum(file.size for file in manifest.files if file.path.startswith("lib/shared/"))
    seconds = pack_seconds(packed) + (manifest.size / BANDWIDTH if origin is Origin.REMOTE else 0)
    size = manifest.size if origin is Origin.REMOTE else 0
    known = {"need": need, "recipe_key": manifest.recipe_key, "size": size}
    return _judged(request, wheel, (), origin, wheel_name(manifest), seconds, **known)


def _to_build(request: WheelRequest, need: Need, ours: OwnWheels) -> Judged:
    wanted = need.request.gpus
    reasons = list(_build_place(request.facts, ours.host))
    cuda, sass = None, wanted
    try:
        driver, asked = request.facts.driver, asks_machine(need.cuda, ours.host.platform, request.facts.driver)
        # A record without builds in mind has not looked for toolkits and compilers.
        machine = with_tools(ours.host) if asked and not ours.host.cores else ours.host
        foreseen = foresee_toolchain(need.cuda, machine, wanted, driver=driver)
        toolkit, cuda = foreseen.toolkit, foreseen.cuda
        if foreseen.release and need.cuda is AnyCuda.AUTO:  # for commands that name no driver
            need = replace(need, cuda=OLDER_CUDA)
        sass = choose_sass(wanted, cuda, toolkit.codes if toolkit and toolkit.codes else codes_of(cuda))
    except FlashdepotError as error:
        wants = f"CUDA {cuda or provided_version()}"
        reasons.append(Diagnosis.misfit("toolchain", wants, "no usable toolchain", error.message, error.hint))
    platform = request.facts.platform or ours.host.platform
    floor = next((row.libc_floor for row in TARGETS if row.platform == platform), None)
    wheel = _our_wheel(need.request.upstream.version, cuda, platform_tag(platform, floor), sass)
    seconds = build_seconds(need.request.selection, len(sass), ours.capacity)
    untested = untested_of(untested_code(need.request.selection, wanted))
    name = f"flash-attn {wheel.version}, built here for {', '.join(a.sm for a in sass)}"
    name += f" (untested: {untested})" if untested else ""
    return _judged(request, wheel, tuple(reasons), Origin.OURS, name, seconds, need=need)


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


def _our_wheel(version: str, cuda: Version | None, tag: str, sass: tuple[Architecture, ...]) -> PublishedWheel:
    codes = tuple(str(a) for a in sass)
    return PublishedWheel(FLASH_ATTN, version, str(cuda or ""), "", None, "py3", "none", tag, OURS, sass=codes)


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
