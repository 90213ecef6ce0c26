"""From facts and everything that could be installed to a decision. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from flashdepot.model.candidate import Candidate, Decision, Judged, NearMiss, Rejection
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.verdict import Reason, Reasons, Verdict, verdict_of
from flashdepot.model.wheel_name import filename_of_url
from flashdepot.model.wheel_request import WheelRequest, origin_of
from flashdepot.resolve.order import rank, version_key
from flashdepot.resolve.rules import RULES, judge, judge_all
from flashdepot.resolve.times import fetch_seconds, size_of

_NEVER_NEAR = frozenset({"distribution", "platform"})
"""Nobody who asks for one distribution is helped by another, or on one system by a wheel for another."""

_FAR = (1 << 30, 0)
"""The distance of what has none."""


def decide(request: WheelRequest, published: Sequence[PublishedWheel], own: Iterable[Judged] = ()) -> Decision:
    """What to install.

    Typical usage::

        decision = decide(WheelRequest(facts), load_catalog().wheels)
        if decision.chosen:
            fetch(decision.chosen.candidate.wheel.url)

    :param own: what flashdepot and upstream's source build can offer, judged (:func:`own_candidates`).
    """
    judged = list(own)
    considered = len(judged) + len(published)
    broken: list[tuple[PublishedWheel, Reasons]] = []
    for wheel, reasons in zip(published, judge_all(request, published), strict=True):
        if any(reason.verdict is Verdict.MISFIT for reason in reasons):
            broken.append((wheel, reasons))
        else:
            judged.append(Judged(candidate_of(request, wheel), verdict_of(reasons), reasons))
    takable = {Verdict.FITS, Verdict.UNCERTAIN} if request.allow_uncertain else {Verdict.FITS}
    return Decision(
        facts=request.facts,
        ranked=rank((j for j in judged if j.verdict in takable), request.facts),
        uncertain=rank(
            (j for j in judged if j.verdict is Verdict.UNCERTAIN and j.verdict not in takable), request.facts
        ),
        misfits=rank((j for j in judged if j.verdict is Verdict.MISFIT), request.facts),
        rejections=_rejections(broken),
        near_misses=_near_misses(request, broken),
        considered=considered,
    )


def candidate_of(request: WheelRequest, wheel: PublishedWheel) -> Candidate:
    """A published wheel as a candidate."""
    size = size_of(wheel)
    return Candidate(
        origin=origin_of(wheel),
        name=filename_of_url(wheel.url),
        wheel=wheel,
        recipe_key="",
        size=size,
        size_known=wheel.size > 0,
        seconds=fetch_seconds(size, request.bandwidth),
    )


def judge_candidate(request: WheelRequest, wheel: PublishedWheel) -> Judged:
    """A published wheel, judged by every rule."""
    reasons = judge(request, wheel)
    return Judged(candidate_of(request, wheel), verdict_of(reasons), reasons)


def explain(request: WheelRequest, published: Iterable[PublishedWheel], named: str) -> tuple[Judged, ...]:
    """Every wheel of a file name or version, judged by all rules; the nearest to fit first."""
    wheels = (w for w in published if named in {w.version, w.url} or filename_of_url(w.url) == named)
    found = [judge_candidate(request, wheel) for wheel in wheels]
    ranked = rank(found, request.facts)
    return tuple(sorted(ranked, key=lambda judged: (judged.verdict.rank, len(judged.reasons), _farthest(judged))))


def _farthest(judged: Judged) -> tuple[int, int]:
    return max((_distance(reason.wants, reason.has) for reason in judged.reasons), default=(0, 0))


def _rejections(broken: Iterable[tuple[PublishedWheel, Reasons]]) -> tuple[Rejection, ...]:
    """Those that do not fit, by the first rule that they break, in the order of the rules."""
    groups: dict[str, list[tuple[PublishedWheel, Reason]]] = defaultdict(list)
    for wheel, reasons in broken:
        first = next(reason for reason in reasons if reason.verdict is Verdict.MISFIT)
        groups[first.rule].append((wheel, first))
    found = []
    for rule in RULES:
        if group := groups.get(rule.id):
            nearest = min((_distance(r.wants, r.has), r.wants) for r in {reason for _, reason in group})
            near = nearest[1] if nearest[0] < _FAR else ""
            example = max((w for w, r in group if not near or r.wants == near), key=_newest)
            found.append(Rejection(rule.id, len(group), near, filename_of_url(example.url)))
    return tuple(found)


def _near_misses(request: WheelRequest, broken: Iterable[tuple[PublishedWheel, Reasons]]) -> tuple[NearMiss, ...]:
    """Of each rule, the nearest of those that break it alone; as many as are for the same and have no more doubts."""
    groups: dict[str, dict[str, list[PublishedWheel]]] = defaultdict(lambda: defaultdict(list))
    kept: dict[PublishedWheel, Reasons] = {}
    for wheel, reasons in broken:
        misfits = [reason for reason in reasons if reason.verdict is Verdict.MISFIT]
        if len(misfits) == 1 and misfits[0].rule not in _NEVER_NEAR:
            groups[misfits[0].rule][misfits[0].wants].append(wheel)
            kept[wheel] = reasons
    found = []
    for rule in RULES:
        if rule.id not in groups:
            continue
        bests = {
            wants: max(group, key=lambda w: (-len(kept[w]), *_newest(w))) for wants, group in groups[rule.id].items()
        }
        nearest = min(_rank_miss(kept[best]) for best in bests.values())
        best = max((b for b in bests.values() if _rank_miss(kept[b]) == nearest), key=_newest)
        wants = next(wants for wants, wheel in bests.items() if wheel is best)
        judged = Judged(candidate_of(request, best), Verdict.MISFIT, kept[best])
        alike = sum(len(kept[wheel]) == len(kept[best]) for wheel in groups[rule.id][wants])
        found.append(NearMiss(alike, judged))
    return tuple(found)


def _rank_miss(reasons: Reasons) -> tuple[int, tuple[int, int]]:
    """Fewer doubts first, then the nearer."""
    broken = next(reason for reason in reasons if reason.verdict is Verdict.MISFIT)
    return len(reasons), _distance(broken.wants, broken.has)


def _newest(wheel: PublishedWheel) -> tuple[object, ...]:
    return (wheel.source == "official", version_key(wheel.version), wheel.seen, wheel.url)


def _distance(wants: str, has: str) -> tuple[int, int]:
    """How far apart two dotted numbers are, or two interpreters of CPython; far for what is neither."""
    pair = [_numbers(text) for text in (wants, has)]
    if pair[0] is None or pair[1] is None:
        return _FAR
    return (abs(pair[0][0] - pair[1][0]), abs(pair[0][1] - pair[1][1]))


def _numbers(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.\d+)*", text) or re.fullmatch(r"cp(\d)(\d+)", text)
    return (int(match[1]), int(match[2] or 0)) if match else None
