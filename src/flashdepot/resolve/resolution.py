"""A question to the resolver, with all that there is to answer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from flashdepot.catalog import CATALOG_FOLDER, load_catalog
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.model.candidate import Decision, Judged
from flashdepot.model.host import HostRecord
from flashdepot.model.library_request import LibraryRequest
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.selection import DEFAULT_FAMILY, Selection
from flashdepot.model.wheel_name import WheelName
from flashdepot.model.wheel_request import COMMUNITY, INDEX, WheelRequest
from flashdepot.resolve.decide import decide, explain, judge_candidate, never_fits
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
        from flashdepot.catalog.machine_code import implied_sass  # noqa: PLC0415  (few ask about one that is not listed)

        parts = WheelName.parse(name)
        built_for, sass = parts.built_for, implied_sass(parts, official=False)
        wheel = PublishedWheel(parts.canonical, parts.version, built_for.cuda, built_for.torch, built_for.cxx11_abi,
            parts.python, parts.abi, parts.platform, NOT_LISTED, name, 0, "", False, sass, "")  # fmt: skip
        return judge_candidate(replace(self.request, sources=self.request.sources | {COMMUNITY}), wheel)


def candidates_for(
    request: WheelRequest,
    library: LibraryRequest,
    machine: HostRecord,
    depot: Depot,
    on_note: Callable[[str], None],
) -> Resolution:
    """What there is for a request: published wheels, stored libraries, and what could be built.

    :param library: what a library of ours must have.
    :param machine: where it would be compiled.
    :param on_note: called with a sentence about what is wrong with the catalog.
    :raises UsageError: for an upstream or a selection that is not known.
    :raises NetworkError: when an index of ours that is named as a source cannot be read.
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
    """What a library must be able to do, the best first: of families that nobody named, the default one alone will do."""
    alone = replace(selection, units=frozenset(unit for unit in selection.units if unit.family == DEFAULT_FAMILY))
    return (selection, alone) if library.families is None else (selection,)
