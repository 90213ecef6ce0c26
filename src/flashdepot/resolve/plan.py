"""From a question to a plan: all that there is to answer it, and what would change the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.catalog import CATALOG_FOLDER, load_catalog
from flashdepot.depot import Depot
from flashdepot.facts.builds import default_cuda
from flashdepot.model.candidate import Judged, Plan, PublishedWheel, WheelRequest
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.target import Platform
from flashdepot.model.wheel import COMMUNITY, INDEX, MADE_HERE, OFFICIAL
from flashdepot.resolve.decide import decide, never_fits, takable
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.own_wheels import OwnWheels


def plan_for(
    request: WheelRequest,
    library: LibraryRequest,
    machine: HostRecord,
    depot: Depot,
    on_note: Callable[[str], None],
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
        alone = replace(every, units=frozenset(unit for unit in every.units if unit.family == DEFAULT_FAMILY))
        # Of families that nobody named only the default one will do, where there is no wheel with all.
        yield from index_candidates(request, (every, alone) if ours.library.families is None else (every,))


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
    if plan.again is None:
        return ()
    now, found = plan.chosen, []
    changes = [{"allow": (_UNCERTAIN,)}] if plan.uncertain and now is None else []
    changes += [_options(m.reason.id, m.best.candidate.wheel, m.reason.expected, plan.facts) for m in plan.near_misses]
    for options in filter(None, changes):
        then = plan.again(changed(plan.request, options))
        if then and (now is None or (now.candidate.origin.compiles and not then[0].candidate.origin.compiles)):
            found.append(Help(options, len(then), then[0]))
    found.sort(key=lambda one: (one.first.verdict.rank, one.first.candidate.seconds))
    unique = {tuple(sorted((name, str(value)) for name, value in one.options.items())): one for one in reversed(found)}
    return tuple(one for one in found if one in unique.values())


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
        return {"allow": (COMMUNITY,)} if wheel.source not in {*MADE_HERE, OFFICIAL} else {}
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
    return cuda if "." in cuda else {"12": "12.8"}.get(cuda, f"{cuda}.0")
