"""Which wheel is installed: the one that was named or locked, or the one that the resolver decides for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from flashdepot.catalog import CATALOG_FOLDER
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, NetworkError, UsageError
from flashdepot.events import Events
from flashdepot.facts.gpus import choose_architectures
from flashdepot.kernels import oldest_gpu
from flashdepot.model.candidate import Judged, Origin, Plan, WheelRequest
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import counted, duration
from flashdepot.model.request import Gpus, LibraryRequest, Need
from flashdepot.model.wheel import DEFAULT_SOURCES, INDEX, OURS
from flashdepot.net.errors import NotThereError
from flashdepot.net.fetch import offline
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.lock import Lock, read_lock
from flashdepot.resolve.plan import plan_for
from flashdepot.resolve.wheel_files import WheelAddress, WheelFile, ask_release, have_wheel, read_named, require_digest

_T = TypeVar("_T")
_OTHERS_TRIED = 3
OURS_MADE = '"$(flashdepot wheel --out dist)"'
"""Stands for our wheel in a command: 'flashdepot wheel' prints its path."""


class InstallRequest(msgspec.Struct, frozen=True):
    """Which wheel is wanted: ``wheel`` names one by path or address, ``locked`` a lock file, else one is chosen.

    ``library`` is what our wheel must have. ``sources`` is empty where none was named. ``sha256`` is the digest
    that the named wheel must have.
    """

    library: LibraryRequest = LibraryRequest()
    sources: frozenset[str] = frozenset()
    wheel: str | None = None
    sha256: str | None = None
    locked: Path | None = None

    @property
    def only_ours(self) -> bool:
        """Whether nobody else's wheel would do: they were not asked for, or the source is not a published one."""
        upstream = self.library.upstream
        if any(source.startswith(INDEX) for source in self.sources):
            return False
        return self.sources == {OURS} or (upstream is not None and not upstream[:1].isdecimal())


class OwnWheel(msgspec.Struct, frozen=True):
    """Our wheel over a library: the one that meets a need, or the one of the recipe that a lock pins."""

    library: Need | str


class Choice(msgspec.Struct, frozen=True):
    """The wheel to install, and why it is that one.

    ``others`` are to be tried, in their order, when it turns out that nobody ever published it: that is known only of
    those that somebody has seen. ``lock`` is what pins it, or would: none for what the user named and for ours.
    """

    wheel: WheelFile | WheelAddress | OwnWheel
    why: str
    others: tuple[Choice, ...] = ()
    lock: Lock | None = None

    @property
    def source(self) -> str:
        """Whose wheel it is."""
        return OURS if isinstance(self.wheel, OwnWheel) else self.wheel.source

    @property
    def reference(self) -> str:
        """The wheel as an argument of other programs."""
        if isinstance(self.wheel, OwnWheel):
            return OURS_MADE
        return str(self.wheel.path.absolute()) if isinstance(self.wheel, WheelFile) else self.wheel.shown

    def to_json(self) -> dict[str, Any]:
        """What is known before anything is fetched or built."""
        wheel = self.wheel
        known: dict[str, Any] = {"source": self.source, "why": self.why}
        if isinstance(wheel, OwnWheel):
            return known
        place = {"path": str(wheel.path)} if isinstance(wheel, WheelFile) else {"url": wheel.shown}
        recorded = {"recorded_by": wheel.recorded_by or None} if isinstance(wheel, WheelAddress) else {}
        return {**known, **place, "sha256": wheel.sha256 or None, "size": wheel.size or None, **recorded}


def choose(request: InstallRequest, record: HostRecord, depot: Depot, events: Events) -> Choice:
    """Decide which wheel to install: what was named or locked, else the first of the plan."""
    _require_one_way(request)
    if request.wheel is not None:
        return Choice(read_named(request.wheel, request.sha256), "it was named")
    if request.locked is not None:
        return _locked(read_lock(request.locked), request.locked)
    plan = plan_for(wheel_request(request, record, events.warn), request.library, record, depot, events.warn)
    if offline():  # what may work and is here comes before what works and cannot be fetched
        plan = replace(plan, ranked=tuple(sorted(plan.ranked, key=lambda judged: not _is_here(judged, plan, depot))))
    if plan.chosen is None:
        raise _nothing(plan)
    if (need := plan.chosen.candidate.need) is not None:
        return Choice(OwnWheel(need), _WHY.get(plan.chosen.candidate.origin) or _why_build(request, plan))
    first, *others = (_published(j, plan) for j in plan.ranked if j.candidate.wheel.url)
    return first if plan.chosen.verified else replace(first, others=tuple(others[:_OTHERS_TRIED]))


def settle(choice: Choice, depot: Depot, events: Events) -> Choice:
    """The choice, or the first of those after it that exists, with the digest in its release's own record, which is asked."""

    def ask(one: Choice) -> Choice:
        if not isinstance(one.wheel, WheelAddress) or offline():
            return one
        try:
            known = ask_release(one.wheel, depot.root / CATALOG_FOLDER / "pages")
        except NotThereError:
            raise
        except NetworkError as error:
            events.warn(error.message)
            return one
        why = one.why if known is one.wheel else one.why.removesuffix(_UNSEEN)
        return replace(one, wheel=known, why=why, others=ranked[ranked.index(one) + 1 :])

    ranked = (choice, *choice.others)
    return _first_there(ranked, ask, events)


def _first_there(choices: Sequence[Choice], attempt: Callable[[Choice], _T], events: Events) -> _T:
    """What the attempt gives of the first that exists; :raises NotThereError: when none does."""
    for one in choices[:-1]:
        try:
            return attempt(one)
        except NotThereError as error:  # noqa: PERF203  (a loop of a few downloads)
            events.warn(f"{error.message} The next best is tried.")
    return attempt(choices[-1])


def fetch_chosen(choice: Choice, depot: Depot, events: Events, *, accept_unverified: bool) -> tuple[Choice, WheelFile]:
    """The chosen wheel, or the first of those after it that exists; what fails for another reason ends the search."""

    def have(one: Choice) -> tuple[Choice, WheelFile]:
        assert isinstance(one.wheel, WheelAddress)  # noqa: S101  (for mypy)
        require_digest(one.wheel, accept_unverified=accept_unverified)
        with events.download(one.wheel.filename) as progress:
            return one, have_wheel(one.wheel, depot.layout.downloads, progress, events.warn)

    published = [one for one in (choice, *choice.others) if isinstance(one.wheel, WheelAddress)]
    return _first_there(published, have, events)


def _is_here(judged: Judged, plan: Plan, depot: Depot) -> bool:
    """Whether a candidate is installed without the network: a stored library, or a wheel that was fetched before."""
    origin, url = judged.candidate.origin, judged.candidate.wheel.url
    if not url or url.startswith("file:"):
        return origin is Origin.DEPOT or bool(url)
    wheel = _published(judged, plan).wheel
    return isinstance(wheel, WheelAddress) and wheel.place(depot.layout.downloads).exists()


_UNSEEN = "; nobody has seen that it exists"
_WHY = {Origin.DEPOT: "a stored library serves", Origin.REMOTE: "a library of a remote serves"}


def wheel_request(request: InstallRequest, record: HostRecord, on_note: Callable[[str], None]) -> WheelRequest:
    """What is asked of the resolver. Without a GPU it is asked for the one that a library would be built for."""
    facts = facts_of(record)
    if request.library.arch is not None or not facts.gpus:
        architectures = choose_architectures(request.library.arch or Gpus.NATIVE, record, oldest_gpu())
        facts = replace(facts, gpus=architectures.wanted)
        if architectures.note:
            on_note(architectures.note)
    sources = frozenset({OURS}) if request.only_ours else request.sources or DEFAULT_SOURCES
    # What cannot be determined from a name, the check of the bytes tells before anything is installed.
    upstream = request.library.upstream or ""
    version = upstream if upstream[:1].isdecimal() else ""
    return WheelRequest(facts, version=version, sources=sources, allow_uncertain=True)


def _published(judged: Judged, plan: Plan) -> Choice:
    candidate = judged.candidate
    wheel = candidate.wheel
    source = f"{candidate.origin}:{wheel.source}" if candidate.origin is Origin.COMMUNITY else wheel.source
    address = WheelAddress(source, candidate.name, wheel.url, wheel.sha256, wheel.size)
    seen = "" if judged.verified else _UNSEEN
    uncertain = f"; its bytes must tell: {judged.reasons[0].text}" if judged.reasons else ""
    why = f"the first of {len(plan.ranked)} that may be taken, of {plan.considered:,}{uncertain}{seen}"
    return Choice(address, why, lock=Lock.of(candidate, plan.facts))


def _why_build(request: InstallRequest, plan: Plan) -> str:
    if request.only_ours:
        return "our wheel was asked for"
    why = "no stored library and no published wheel serves"
    if plan.near_misses:
        why += f". Of the nearest: {plan.near_misses[0].reason.text.rstrip('.')}"
    if (others := next((miss.best for miss in plan.near_misses if miss.reason.id == "source"), None)) is not None:
        why += f". A wheel of other people may fit, in about {duration(others.candidate.seconds)}: --source community"
    return why


def _nothing(plan: Plan) -> IncompatibleError:
    reasons = [plan.fatal] if plan.fatal else []
    reasons += [r for judged in plan.misfits for r in judged.broken]
    reasons += [miss.reason for miss in plan.near_misses]
    if not reasons:
        hint = "'flashdepot resolve' shows all that was considered."
        return IncompatibleError(f"None of {plan.considered:,} wheels fits here.", hint=hint)
    considered = f"None of {plan.considered:,} wheels fits here: " if plan.considered else ""
    kept_out = next((rejection.count for rejection in plan.rejections if rejection.rule == "source"), 0)
    others = f"\nOf other people {counted(kept_out, 'wheel')} may fit: --source community" if kept_out else ""
    return IncompatibleError(f"{considered}{reasons[0].text}", hint=f"{reasons[0].fix}{others}")


def _locked(lock: Lock, path: Path) -> Choice:
    why, wheel = f"{path.name} pins it", lock.wheel
    if wheel.recipe_key:
        return Choice(OwnWheel(wheel.recipe_key), why)
    address = WheelAddress(str(lock.origin), wheel.filename, wheel.url, wheel.sha256, wheel.size)
    return Choice(address, why, lock=lock)


def _require_one_way(request: InstallRequest) -> None:
    ways = {"--wheel": request.wheel, "--locked": request.locked, "--source": request.sources or None}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} contradict each other: give only one.")
    if request.sha256 is not None and request.wheel is None:
        raise UsageError("--sha256 is the digest of a wheel that is named.", hint="Name it: --wheel FILE|URL")
