"""A question to the resolver with all that there is to answer it, and what would change the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.catalog import CATALOG_FOLDER, load_catalog
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.facts.builds import default_cuda
from flashdepot.model.candidate import (
    COMMUNITY,
    INDEX,
    MADE_HERE,
    OFFICIAL,
    Decision,
    Judged,
    PublishedWheel,
    WheelRequest,
)
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import DEFAULT_FAMILY, Selection
from flashdepot.model.target import Platform
from flashdepot.model.wheel import WheelName
from flashdepot.resolve.decide import decide, explain, judge_candidate, never_fits
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.own_wheels import Workshop, need_of, own_candidates

NOT_LISTED = "not listed"
"""The source of a wheel that no collection in the catalog has."""


class Resolution(msgspec.Struct, frozen=True):
    """What was asked, and all that there is to answer it with: published wheels, and candidates of our own.

    ``again`` asks something else of the same machine, depot and catalog.
    """

    request: WheelRequest
    published: Sequence[PublishedWheel]
    own: tuple[Judged, ...]
    again: Callable[[WheelRequest], Resolution] | None = None

    def __repr__(self) -> str:
        return f"<Resolution of {len(self.published)} published wheels and {len(self.own)} of our own>"

    @property
    def decision(self) -> Decision:
        """The answer."""
        return decide(self.request, self.published, self.own)

    def explain(self, named: str) -> list[Judged]:
        """Wheels of a file name, a version or an origin, each judged by every rule; the nearest to fit first.

        A file name that no collection lists is judged by what it says.

        :raises UsageError: for what names nothing.
        """
        mine = [j for j in self.own if named in {str(j.candidate.origin), j.candidate.name, j.candidate.wheel.version}]
        found = [*mine, *explain(self.request, self.published, named)]
        if not found and not named.endswith(".whl"):
            raise UsageError(
                f"'{named}' is neither the file name nor the version of a wheel in the catalog.",
                hint="'flashdepot catalog update' asks for newer ones; 'flashdepot check FILE' judges a file by its bytes.",
            )
        found = found or [self._unlisted(named)]
        return sorted(found, key=lambda judged: judged.verdict.rank)

    def _unlisted(self, name: str) -> Judged:
        from flashdepot.catalog.published_files import implied_sass  # noqa: PLC0415  (few ask about one that is not listed)

        parts = WheelName.parse(name)
        wheel = PublishedWheel.of(parts, NOT_LISTED, url=name, sass=implied_sass(parts, official=False))
        return judge_candidate(replace(self.request, sources=self.request.sources | {COMMUNITY}), wheel)


def candidates_for(
    request: WheelRequest,
    library: LibraryRequest,
    machine: HostRecord,
    depot: Depot,
    on_note: Callable[[str], None],
) -> Resolution:
    """What there is for a request: published wheels, stored libraries, and what could be built.

    :param library: what our library must have.
    :param machine: where it would be compiled.
    :param on_note: called with a sentence about what is wrong with the catalog.
    :raises UsageError: for an upstream or a selection that is not known.
    :raises NetworkError: when our index that is named as a source cannot be read.
    """
    catalog = load_catalog(depot.root / CATALOG_FOLDER)
    for note in catalog.notes:
        on_note(note)
    workshop = Workshop.of(machine)

    def ask(wanted: WheelRequest) -> Resolution:
        own = () if never_fits(wanted) else _own_and_indexed(wanted, library, workshop, depot)
        return Resolution(wanted, catalog.wheels, own, ask)

    return ask(request)


def _own_and_indexed(
    request: WheelRequest, library: LibraryRequest, workshop: Workshop, depot: Depot
) -> tuple[Judged, ...]:
    own = [*own_candidates(request, library, workshop, depot)]
    if any(source.startswith(INDEX) for source in request.sources):
        from flashdepot.resolve.own_indexes import index_candidates  # noqa: PLC0415  (few name one)

        need = need_of(request, library, workshop, depot)
        own += index_candidates(request, _served_by(need.request.selection, library)) if need else ()
    return tuple(own)


def _served_by(selection: Selection, library: LibraryRequest) -> tuple[Selection, ...]:
    """What a library must be able to do, the best first: of families that nobody named, only the default one will do."""
    alone = replace(selection, units=frozenset(unit for unit in selection.units if unit.family == DEFAULT_FAMILY))
    return (selection, alone) if library.families is None else (selection,)


_FACTS = frozenset(NamedFacts.__struct_fields__)
_UNCERTAIN = "uncertain"


class Help(msgspec.Struct, frozen=True):
    """Options that change an answer, and the answer then: how many candidates fit, and the first of them.

    ``options`` are by the names of the fields that they fill; ``None`` takes one back.
    """

    options: Mapping[str, Any]
    fitting: int
    first: Judged


def helps(resolution: Resolution) -> tuple[Help, ...]:
    """Each change of one thing that gives a better answer than there is, the least time until usable first."""
    if resolution.again is None:
        return ()
    now, found = resolution.decision, []
    for options in _changes(now):
        then = resolution.again(changed(resolution.request, options)).decision
        if then.chosen is not None and _is_better(then.chosen, now.chosen):
            found.append(Help(options, len(then.ranked), then.chosen))
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


def _is_better(then: Judged, now: Judged | None) -> bool:
    return now is None or (now.candidate.origin.compiles and not then.candidate.origin.compiles)


def _changes(decision: Decision) -> Iterator[dict[str, Any]]:
    if decision.uncertain and not decision.chosen:
        yield {"allow": (_UNCERTAIN,)}
    for miss in decision.near_misses:
        if options := _options(miss.reason.id, miss.best.candidate.wheel, miss.reason.expected, decision.facts):
            yield options


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
