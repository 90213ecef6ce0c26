"""What could be installed, what is asked for, and what was decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from flashdepot.model.codec import FixedWord
from flashdepot.model.diagnosis import Diagnosis, Verdict
from flashdepot.model.environment import Environment
from flashdepot.model.request import Need
from flashdepot.model.target import Version
from flashdepot.model.wheel import COMMUNITY, DEFAULT_SOURCES, FLASH_ATTN, INDEX, OFFICIAL, OURS, WheelName


class PublishedWheel(NamedTuple):
    """One published wheel: a tuple, since thousands are read and judged in a few milliseconds.

    ``distribution`` is the canonical name (``flash-attn``, ``flash-attn-3``), ``version`` the public version.
    ``cuda`` is the CUDA that the wheel was built for as far as its name tells, dotted: ``12.4``, or ``12`` where it
    names only the major version, or empty. ``torch`` the same: ``2.8``, ``2.6.0``, or empty. ``cxx11_abi`` is
    ``None`` where the name does not say. ``python``, ``abi`` and ``platform`` are the three parts of the wheel tag,
    compressed sets as spelled (PEP 425).

    ``source`` is the name of the collection. ``size`` in bytes is 0, and ``sha256`` empty, where it is not known.
    ``seen`` says that the file was found to exist, and was not only computed from a release's build matrix. ``sass``
    are the architectures that a build of that version by that CUDA has machine code for, as nvcc numbers them
    (``("80", "90")``), empty where that is not known; ``ptx`` is the newest one it has PTX for, or empty.
    """

    distribution: str
    version: str
    cuda: str
    torch: str
    cxx11_abi: bool | None
    python: str
    abi: str
    platform: str
    source: str
    url: str = ""
    size: int = 0
    sha256: str = ""
    seen: bool = False
    sass: tuple[str, ...] = ()
    ptx: str = ""

    @classmethod
    def of(cls, name: WheelName, source: str, **known: Any) -> PublishedWheel:
        """A wheel of a collection by what its file name tells, and what else is known."""
        built = name.built_for
        tells = (name.canonical, name.version, built.cuda, built.torch, built.cxx11_abi)
        return cls(*tells, name.python, name.abi, name.platform, source)._replace(**known)


class Origin(FixedWord):
    """Where a candidate comes from.

    ``DEPOT``: our wheel over a library that the depot has, ``REMOTE``: over one that a remote has. ``OURS``: our wheel
    over one that must be built first.
    ``INDEX``: our wheel in our index. ``OFFICIAL`` and ``COMMUNITY``: a published wheel.
    """

    DEPOT = "depot"
    REMOTE = "remote"
    OURS = "ours"
    INDEX = "index"
    OFFICIAL = "official"
    COMMUNITY = "community"

    @property
    def compiles(self) -> bool:
        """Whether taking it starts a compiler."""
        return self is Origin.OURS


class Candidate(msgspec.Struct, frozen=True):
    """One thing that could be installed, with all that it takes to get it.

    ``name`` is a wheel's file name, for ``OURS`` what will be made. ``wheel`` has a published wheel's
    facts, and for ours those that the wheel has or will have, without a URL. ``seconds`` is the expected time until it
    can be imported. ``size`` in bytes is what is fetched, 0 where nothing is; ``size_known`` says that it is listed and
    not estimated. ``need`` is what its library must have, and the CUDA that builds it where it must be built; ``recipe_key``
    names the library that is there.
    """

    origin: Origin
    name: str
    wheel: PublishedWheel
    seconds: float
    size: int = 0
    size_known: bool = False
    need: Need | None = None
    recipe_key: str = ""

    @property
    def cuda(self) -> str:
        """What must be named with ``--cuda`` to build it, empty for what is taken by itself."""
        builds = self.origin is Origin.OURS and self.need is not None and isinstance(self.need.cuda, Version)
        return str(self.need.cuda) if builds and self.need else ""


class Judged(msgspec.Struct, frozen=True):
    """A candidate with its verdict: the worst of its reasons, ``FITS`` without any."""

    candidate: Candidate
    verdict: Verdict
    reasons: tuple[Diagnosis, ...]

    def __repr__(self) -> str:
        return f"<{self.candidate.name}: {self.verdict}, {self.candidate.seconds:.0f} s>"

    @property
    def verified(self) -> bool:
        """Whether it is known to exist: it is stored, or somebody has seen the file."""
        return self.candidate.origin in {Origin.DEPOT, Origin.REMOTE} or self.candidate.wheel.seen

    @property
    def broken(self) -> tuple[Diagnosis, ...]:
        """The rules that it breaks, without what is only not known."""
        return tuple(reason for reason in self.reasons if reason.verdict is Verdict.MISFIT)

    def to_json(self) -> dict[str, Any]:
        """What a script wants to know of it."""
        candidate, wheel = self.candidate, self.candidate.wheel
        return {
            "origin": str(candidate.origin),
            "name": candidate.name,
            "source": wheel.source,
            "version": wheel.version,
            "verdict": str(self.verdict),
            "verified": self.verified,
            "url": wheel.url,
            "sha256": wheel.sha256,
            "recipe_key": candidate.recipe_key,
            "size": candidate.size,
            "size_known": candidate.size_known,
            "seconds": round(candidate.seconds, 1),
            "reasons": [reason.to_json() for reason in self.reasons],
        }


class Rejection(msgspec.Struct, frozen=True):
    """All published wheels whose first broken rule is the same.

    ``nearest`` is what the nearest of them are for, in the rule's terms, empty where the rule knows no nearer.
    """

    rule: str
    count: int
    nearest: str
    example: str


class NearMiss(msgspec.Struct, frozen=True):
    """Wheels that fit but for one rule: how many, the best of them, and the reason."""

    count: int
    best: Judged

    @property
    def reason(self) -> Diagnosis:
        """What keeps it from fitting."""
        return self.best.broken[0]

    def to_json(self) -> dict[str, Any]:
        """Count, wheel and reason."""
        return {"count": self.count, "best": self.best.to_json(), "reason": self.reason.to_json()}


class WheelRequest(msgspec.Struct, frozen=True):
    """Which wheel is needed, and from whom it may come.

    ``version`` is empty for the newest FlashAttention-2, a version such as ``2.8.3`` or ``2.7``, or a PEP 440
    specifier such as ``>=2.7,<2.8``. ``sources`` are those that may be taken: ``ours``, ``official``, ``community``, ``community:NAME`` for one
    collection, ``index:ADDRESS`` for our index. ``allow_uncertain`` lets a candidate be taken of which it
    cannot be determined whether it fits.
    """

    facts: Environment
    distribution: str = FLASH_ATTN
    version: str = ""
    sources: frozenset[str] = DEFAULT_SOURCES
    allow_uncertain: bool = False

    def allows(self, wheel_source: str) -> bool:
        """Whether a published wheel of that collection may be taken."""
        if wheel_source in {OURS, OFFICIAL} or wheel_source.startswith(INDEX):
            return wheel_source in self.sources
        return COMMUNITY in self.sources or f"{COMMUNITY}:{wheel_source}" in self.sources


class Plan(msgspec.Struct, frozen=True):
    """All that could serve a request, judged: what to take first, and why not the rest.

    ``ranked`` are all candidates that may be taken, the best first. ``uncertain`` are those of which it is not
    known, best first, that were left out for it. ``misfits`` are the candidates of our own and of upstream's source
    build that do not fit. ``considered`` counts all candidates. ``fatal`` is why nothing can ever fit there; nothing is
    considered then. ``published`` and ``own`` are what was judged, and ``again`` says what may be taken, the best first,
    for another request to the same machine, depot and catalog.
    """

    request: WheelRequest
    ranked: tuple[Judged, ...] = ()
    uncertain: tuple[Judged, ...] = ()
    misfits: tuple[Judged, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    considered: int = 0
    fatal: Diagnosis | None = None
    published: Sequence[PublishedWheel] = ()
    own: tuple[Judged, ...] = ()
    again: Callable[[WheelRequest], tuple[Judged, ...]] | None = None

    def __repr__(self) -> str:
        chosen = self.chosen.candidate.name if self.chosen else "nothing"
        return f"<Plan to take {chosen}: {len(self.ranked)} of {self.considered} fit>"

    @property
    def facts(self) -> Environment:
        """The environment that it is for."""
        return self.request.facts

    @property
    def chosen(self) -> Judged | None:
        """What to install; ``None`` when nothing may be taken."""
        return self.ranked[0] if self.ranked else None

    @property
    def runner_up(self) -> Judged | None:
        """The best of another origin or collection than the chosen; the next best where there is none."""
        if (first := self.chosen) is None:
            return None
        others = self.ranked[1:]
        place = (first.candidate.origin, first.candidate.wheel.source)
        elsewhere = (j for j in others if (j.candidate.origin, j.candidate.wheel.source) != place)
        return next(elsewhere, others[0] if others else None)

    @property
    def missing(self) -> tuple[str, ...]:
        """The options that would tell what nothing could be decided without; empty when something was decided.

        They are those of all that facts would decide. Where a record lacks the GPU, the driver or PyTorch, and something
        else speaks against the most likely one as well, they are those of that one.
        """
        if self.ranked:
            return ()
        facts = self.facts
        waiting = [j for j in self.uncertain if all(reason.lacks_fact for reason in j.reasons)]
        if not (waiting or (facts.gpus and facts.driver and facts.torch)):
            waiting = [*self.uncertain[:1]]
        reasons = (reason for judged in waiting for reason in judged.reasons if reason.lacks_fact)
        return tuple(dict.fromkeys(str(reason.fix) for reason in reasons))

    def to_json(self) -> Mapping[str, Any]:
        """The plan as one document, without the long tail of what fits."""
        chosen, runner_up = self.chosen, self.runner_up
        return {
            "facts": self.facts.to_json(),
            "origins": dict(self.facts.origins),
            "chosen": chosen.to_json() if chosen else None,
            "runner_up": runner_up.to_json() if runner_up else None,
            "fitting": len(self.ranked),
            "uncertain": len(self.uncertain),
            "most_likely": self.uncertain[0].to_json() if self.uncertain else None,
            "missing": list(self.missing),
            "misfits": [judged.to_json() for judged in self.misfits],
            "rejected": [asdict(rejection) for rejection in self.rejections],
            "near_misses": [miss.to_json() for miss in self.near_misses],
            "considered": self.considered,
            "fatal": self.fatal.to_json() if self.fatal else None,
        }


def origin_of(source: str) -> Origin:
    """Whether a published wheel is of our index, of upstream's own releases or of somebody else's collection."""
    if source.startswith(INDEX):
        return Origin.INDEX
    return Origin.OFFICIAL if source == OFFICIAL else Origin.COMMUNITY
