"""From facts and everything that could be installed to a decision. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from flashdepot.errors import UsageError
from flashdepot.fit.rules import fatal
from flashdepot.model.candidate import (
    Candidate,
    Judged,
    NearMiss,
    Origin,
    Plan,
    PublishedWheel,
    Rejection,
    WheelRequest,
    origin_of,
)
from flashdepot.model.diagnosis import Diagnosis, Reasons, Verdict, verdict_of
from flashdepot.model.environment import Environment
from flashdepot.model.wheel import COMMUNITY, FLASH_ATTN, OFFICIAL, WheelName, filename_of_url, version_key
from flashdepot.resolve.rules import RULES, judge, judge_all, unbroken
from flashdepot.resolve.times import fetch_seconds, size_of


class _Preference(NamedTuple):
    """What the lower value of comes first, and a sentence about the first of two that differ in it."""

    key: Callable[[Judged, Environment], Any]
    why: str
    highest_first: bool = False


_PREFERENCES = (
    _Preference(lambda j, _: j.verdict.rank, "the first is certain to work"),
    _Preference(lambda j, _: len(j.reasons), "fewer things about the first are uncertain"),
    _Preference(lambda j, _: j.candidate.origin.compiles, "the first needs no compiler"),
    _Preference(lambda j, _: j.verdict is Verdict.FITS and not j.verified, "the first is known to exist"),
    _Preference(lambda j, _: j.candidate.origin is Origin.COMMUNITY, "{one.origin} comes before {other.origin}"),
    _Preference(
        lambda j, _: version_key(j.candidate.wheel.version),
        "{one.wheel.version} is newer than {other.wheel.version}",
        highest_first=True,
    ),
    _Preference(lambda j, facts: cuda_distance(j.candidate.wheel, facts), "the first has a CUDA nearer to torch's"),
    _Preference(
        lambda j, _: "manylinux" not in j.candidate.wheel.platform,
        "the name of the first says which C library it needs",
    ),
    _Preference(lambda j, _: j.candidate.seconds, "the first takes less time"),
)
"""What puts one candidate before another, the strongest first. Equal in all of it, the name and the URL decide."""


def rank(candidates: Iterable[Judged], facts: Environment) -> tuple[Judged, ...]:
    """The candidates by :data:`_PREFERENCES`, best first, whatever order they come in."""
    ordered = sorted(candidates, key=lambda j: (j.candidate.name, j.candidate.wheel.url))
    # Stable sorts, the weakest first: a version has no number that could be turned around.
    for key, _, highest_first in reversed(_PREFERENCES):
        ordered.sort(key=lambda j, key=key: key(j, facts), reverse=highest_first)  # type: ignore[misc]
    return tuple(ordered)


def why_before(first: Judged, second: Judged, facts: Environment) -> str:
    """What puts one candidate before another, as a sentence about the first; empty for two that differ in only their names."""
    whys = (why for key, why, _ in _PREFERENCES if key(first, facts) != key(second, facts))
    return next(whys, "").format(one=first.candidate, other=second.candidate)


def cuda_distance(wheel: PublishedWheel, facts: Environment) -> int:
    """0 for the CUDA release that torch has, 1 where the wheel names only the major version, 2 for another release."""
    mine = facts.torch.cuda if facts.torch else None
    if mine is None or not wheel.cuda or not wheel.torch or "." not in wheel.cuda:
        return 1
    return 0 if wheel.cuda.split(".")[:2] == mine.text.split(".")[:2] else 2


_NEVER_NEAR = frozenset({"distribution", "platform"})
"""Nobody who asks for one distribution is helped by another, or on one system by a wheel for another."""

_FAR = 1 << 60
"""The distance of what has none."""


def decide(request: WheelRequest, published: Sequence[PublishedWheel], own: Iterable[Judged] = ()) -> Plan:
    """All that could serve, judged and ranked; ``own`` is what flashdepot can offer (:class:`OwnWheels`)."""
    if (never := never_fits(request)) is not None:
        return Plan(request, fatal=never, published=tuple(published))
    judged = mine = tuple(own)
    broken: dict[str, list[_Broken]] = defaultdict(list)
    for wheel, misfit, reasons in judge_all(request, published):
        if misfit is not None:
            broken[misfit.id].append(_Broken(wheel, misfit, reasons))
        else:
            judged += (_judged(wheel, reasons),)
    return Plan(
        request,
        ranked=_takable(request, judged),
        uncertain=()
        if request.allow_uncertain
        else rank((j for j in judged if j.verdict is Verdict.UNCERTAIN), request.facts),
        misfits=rank((j for j in judged if j.verdict is Verdict.MISFIT), request.facts),
        rejections=tuple(_rejections(broken)),
        near_misses=tuple(_near_misses(broken)),
        considered=len(mine) + len(published),
        published=tuple(published),
        own=mine,
    )


def takable(request: WheelRequest, published: Iterable[PublishedWheel], own: Iterable[Judged]) -> tuple[Judged, ...]:
    """Only what :func:`decide` ranks, in a tenth of the time."""
    if never_fits(request) is not None:
        return ()
    found = (_judged(wheel, judge(request, wheel)) for wheel in unbroken(request, published))
    return _takable(request, (*own, *found))


def _takable(request: WheelRequest, judged: Iterable[Judged]) -> tuple[Judged, ...]:
    wanted = {Verdict.FITS, Verdict.UNCERTAIN} if request.allow_uncertain else {Verdict.FITS}
    return rank((j for j in judged if j.verdict in wanted), request.facts)


def _judged(wheel: PublishedWheel, reasons: Reasons) -> Judged:
    return Judged(candidate_of(wheel), verdict_of(reasons), reasons)


def never_fits(request: WheelRequest) -> Diagnosis | None:
    """What ends the answer before anything is considered; version 1 ran on older GPUs, and other packages have others."""
    plain = request.distribution == FLASH_ATTN and not request.version.startswith("1")
    return fatal(request.facts) if plain else None


def candidate_of(wheel: PublishedWheel) -> Candidate:
    """A published wheel as a candidate."""
    size = size_of(wheel)
    return Candidate(
        origin=origin_of(wheel.source),
        name=filename_of_url(wheel.url),
        wheel=wheel,
        seconds=fetch_seconds(size),
        size=size,
        size_known=wheel.size > 0,
    )


NOT_LISTED = "not listed"
"""The source of a wheel that no collection in the catalog has."""


def explain(plan: Plan, named: str) -> list[Judged]:
    """Wheels of a file name, a version or an origin, each judged by every rule; the nearest to fit first.

    A file name that no collection lists is judged by what it says.
    """
    request = plan.request
    mine = [j for j in plan.own if named in {str(j.candidate.origin), j.candidate.name, j.candidate.wheel.version}]
    wheels = (w for w in plan.published if named in {w.version, w.url} or filename_of_url(w.url) == named)
    found = rank((_judged(wheel, judge(request, wheel)) for wheel in wheels), request.facts)
    nearest = sorted(found, key=lambda judged: (judged.verdict.rank, len(judged.reasons), _farthest(judged)))
    if not (mine or nearest) and not named.endswith(".whl"):
        raise UsageError(
            f"'{named}' is neither the file name nor the version of a wheel in the catalog.",
            hint="'flashdepot catalog update' asks for newer ones; 'flashdepot check FILE' judges a file by its bytes.",
        )
    return sorted([*mine, *nearest] or [_unlisted(request, named)], key=lambda judged: judged.verdict.rank)


def _unlisted(request: WheelRequest, name: str) -> Judged:
    from flashdepot.catalog.published_files import implied_sass  # noqa: PLC0415  (few ask about one that is not listed)

    parts = WheelName.parse(name)
    wheel = PublishedWheel.of(parts, NOT_LISTED, url=name, sass=implied_sass(parts, official=False))
    request = replace(request, sources=request.sources | {COMMUNITY})
    return _judged(wheel, judge(request, wheel))


def _farthest(judged: Judged) -> int:
    return max((_distance(reason.expected, reason.observed) for reason in judged.reasons), default=0)


class _Broken(NamedTuple):
    """A wheel, the first rule that it breaks, and all reasons against it where it breaks no other."""

    wheel: PublishedWheel
    misfit: Diagnosis
    reasons: Reasons

    @property
    def distance(self) -> int:
        return _distance(self.misfit.expected, self.misfit.observed)


def _rejections(broken: Mapping[str, Sequence[_Broken]]) -> Iterator[Rejection]:
    """Those that do not fit, by the first rule that they break, in the order of the rules."""
    for rule in RULES:
        if group := broken.get(rule.id):
            distance, expected = min((one.distance, one.misfit.expected) for one in group)
            near = expected if distance < _FAR else ""
            example = max((one.wheel for one in group if not near or one.misfit.expected == near), key=_age)
            yield Rejection(rule.id, len(group), near, filename_of_url(example.url))


def _near_misses(broken: Mapping[str, Sequence[_Broken]]) -> Iterator[NearMiss]:
    """Of each rule, the nearest of those that break only it; as many as are for the same and have no more uncertainties."""
    for rule in RULES:
        if group := [one for one in broken.get(rule.id, ()) if one.reasons and rule.id not in _NEVER_NEAR]:
            nearest = min(map(_rank_miss, group))
            near = [one for one in group if _rank_miss(one) == nearest]
            best = max(near, key=lambda one: _age(one.wheel))
            count = sum(one.misfit.expected == best.misfit.expected for one in near)
            yield NearMiss(count, Judged(candidate_of(best.wheel), Verdict.MISFIT, best.reasons))


def _rank_miss(one: _Broken) -> tuple[int, int]:
    return len(one.reasons), one.distance


def _age(wheel: PublishedWheel) -> tuple[object, ...]:
    """The newest last, of upstream's own where there is one."""
    return (wheel.source == OFFICIAL, version_key(wheel.version), wheel.seen, wheel.url)


@cache
def _distance(wants: str, has: str) -> int:
    """How far apart two dotted numbers are, or two interpreters of CPython; far for what is neither."""
    one, other = _numbers(wants), _numbers(has)
    return _FAR if one is None or other is None else abs(one - other)


def _numbers(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.\d+)*", text) or re.fullmatch(r"cp(\d)(\d+)t?", text)
    return sum(int(number or 0) * 1000 ** (2 - place) for place, number in enumerate(match.groups())) if match else None
