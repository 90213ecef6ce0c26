"""Which wheel is installed: the one that was named or locked, or the one that the resolver decides for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.events import Events
from flashdepot.install.present import OURS_MADE
from flashdepot.install.sources import WheelAddress, WheelFile, read_named
from flashdepot.kernels import oldest_gpu
from flashdepot.model.candidate import DEFAULT_SOURCES, INDEX, OURS, Decision, Judged, Origin, WheelRequest
from flashdepot.model.host import HostRecord
from flashdepot.model.request import Gpus, LibraryRequest
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.library import (
    Need,
    understand_for_wheel,
)
from flashdepot.resolve.lock import Lock, read_lock
from flashdepot.resolve.plan import candidates_for
from flashdepot.toolchain.architectures import choose_architectures

_OTHERS_TRIED = 3


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
    """Decide which wheel to install.

    ``events`` is warned of what is wrong with the catalog.

    :raises UsageError: for options that contradict each other, or a lock that cannot be used.
    :raises IncompatibleError: when nothing fits.
    """
    _require_one_way(request)
    if request.wheel is not None:
        return Choice(read_named(request.wheel, request.sha256), "it was named")
    if request.locked is not None:
        return _locked(read_lock(request.locked), request.locked)
    if request.only_ours:
        return _own(request, record, depot, "our wheel was asked for")
    wheels = _wheel_request(request, record, events.warn)
    decision = candidates_for(wheels, request.library, record, depot, events.warn).decision
    return _decided(decision, request, record, depot)


def _wheel_request(request: InstallRequest, record: HostRecord, on_note: Callable[[str], None]) -> WheelRequest:
    """What is asked of the resolver. Without a GPU it is asked for the one that a library would be built for."""
    facts = facts_of(record)
    if request.library.arch is not None or not facts.gpus:
        architectures = choose_architectures(request.library.arch or Gpus.NATIVE, record, oldest_gpu())
        facts = replace(facts, gpus=architectures.wanted)
        if architectures.note:
            on_note(architectures.note)
    sources = request.sources or DEFAULT_SOURCES
    # What cannot be determined from a name, the check of the bytes tells before anything is installed.
    upstream = request.library.upstream or ""
    version = upstream if upstream[:1].isdecimal() else ""
    return WheelRequest(facts, version=version, sources=sources, allow_uncertain=True)


def _decided(decision: Decision, request: InstallRequest, record: HostRecord, depot: Depot) -> Choice:
    chosen = decision.chosen
    if chosen is None:
        raise _nothing(decision)
    if chosen.candidate.origin in {Origin.DEPOT, Origin.OURS}:
        why = "a stored library serves" if chosen.candidate.origin is Origin.DEPOT else _why_build(decision)
        return _own(request, record, depot, why)
    elsewhere = {Origin.INDEX, Origin.OFFICIAL, Origin.COMMUNITY}
    published = [j for j in decision.ranked if j.candidate.origin in elsewhere]
    first, *others = (_published(judged, decision) for judged in published[: 1 + _OTHERS_TRIED])
    return first if chosen.verified else replace(first, others=tuple(others))


def _published(judged: Judged, decision: Decision) -> Choice:
    candidate = judged.candidate
    wheel = candidate.wheel
    source = f"{candidate.origin}:{wheel.source}" if candidate.origin is Origin.COMMUNITY else wheel.source
    address = WheelAddress(source, candidate.name, wheel.url, wheel.sha256, wheel.size)
    seen = "" if judged.verified else "; nobody has seen that it exists"
    doubt = f"; its bytes must tell: {judged.reasons[0].text}" if judged.reasons else ""
    why = f"the first of {len(decision.ranked)} that may be taken, of {decision.considered}{seen}{doubt}"
    return Choice(address, why, lock=Lock.of(candidate, decision.facts))


def _why_build(decision: Decision) -> str:
    """Why it comes to compiling: what the nearest wheel lacks."""
    why = "no stored library and no published wheel serves"
    return f"{why} ({decision.near_misses[0].reason.text.rstrip('.')})" if decision.near_misses else why


def _nothing(decision: Decision) -> IncompatibleError:
    hint = "'flashdepot resolve' shows all that was considered; 'flashdepot install --source ours' makes one."
    near = f": {decision.near_misses[0].reason.text}" if decision.near_misses else "."
    return IncompatibleError(f"None of {decision.considered} wheels fits here{near}", hint=hint)


def _own(request: InstallRequest, record: HostRecord, depot: Depot, why: str) -> Choice:
    need = understand_for_wheel(request.library, record, depot)
    return Choice(OwnWheel(need), why)


def _locked(lock: Lock, path: Path) -> Choice:
    locked = lock.locked
    why = f"{path.name} pins it"
    if locked.recipe_key:
        return Choice(OwnWheel(locked.recipe_key), why)
    wheel = locked.wheel
    return Choice(
        WheelAddress(str(locked.origin), locked.filename, wheel.url, wheel.sha256, wheel.size), why, lock=lock
    )


def _require_one_way(request: InstallRequest) -> None:
    ways = {"--wheel": request.wheel, "--locked": request.locked, "--source": request.sources or None}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} contradict each other: give only one.")
    if request.sha256 is not None and request.wheel is None:
        raise UsageError("--sha256 is the digest of a wheel that is named.", hint="Name it: --wheel FILE|URL")
