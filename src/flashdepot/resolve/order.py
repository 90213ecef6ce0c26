"""Which of two candidates is the better one."""

from __future__ import annotations

from collections.abc import Iterable

from flashdepot.model.candidate import Judged, Origin
from flashdepot.model.environment import Environment
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.verdict import Verdict
from flashdepot.model.version_order import version_key

_TRUST = {
    Origin.DEPOT: 0,
    Origin.OURS: 0,
    Origin.INDEX: 0,
    Origin.OFFICIAL: 0,
    Origin.COMMUNITY: 1,
    Origin.PIP: 2,
}


def rank(candidates: Iterable[Judged], facts: Environment) -> tuple[Judged, ...]:
    """The candidates, best first, whatever order they come in.

    First what is certain to work: what is stored or was seen to exist, then what is expected to exist or must be
    compiled, last what cannot be told, the less doubts the better. Then what needs no compiler, then the source, then
    the newer version, then a CUDA nearer to torch's, then a platform tag that promises a C library, then the shorter
    time; equal in all of that, the name and the URL decide.
    """
    # Stable sorts, the weakest rule first: a version has no number that could be turned around.
    ordered = sorted(candidates, key=lambda j: (j.candidate.seconds, j.candidate.name, j.candidate.wheel.url))
    ordered.sort(key=lambda j: (cuda_distance(j.candidate.wheel, facts), "manylinux" not in j.candidate.wheel.platform))
    ordered.sort(key=lambda j: version_key(j.candidate.wheel.version), reverse=True)
    ordered.sort(key=lambda j: (certainty(j), len(j.reasons), j.candidate.origin.compiles, _TRUST[j.candidate.origin]))
    return tuple(ordered)


def certainty(judged: Judged) -> int:
    """0 for what certainly works, 1 for what fits and is not known to exist or must be compiled, 2 for what may."""
    if judged.verdict is not Verdict.FITS:
        return 1 + judged.verdict.rank
    return 0 if judged.verified and not judged.candidate.origin.compiles else 1


def why_before(first: Judged, second: Judged, facts: Environment) -> str:
    """What puts one candidate before another, as a sentence about the first; empty for two that differ in their names alone."""
    one, other = first.candidate, second.candidate
    if certainty(first) < certainty(second):
        return "the first is certain to work" if first.verdict is not second.verdict else "the first is known to exist"
    if len(first.reasons) < len(second.reasons):
        return "there are fewer doubts about the first"
    if one.origin.compiles < other.origin.compiles:
        return "the first needs no compiler"
    if _TRUST[one.origin] < _TRUST[other.origin]:
        return f"{one.origin} comes before {other.origin}"
    if version_key(one.wheel.version) > version_key(other.wheel.version):
        return f"{one.wheel.version} is newer than {other.wheel.version}"
    if cuda_distance(one.wheel, facts) < cuda_distance(other.wheel, facts):
        return "the first has a CUDA nearer to torch's"
    return "the first takes less time" if one.seconds < other.seconds else ""


def cuda_distance(wheel: PublishedWheel, facts: Environment) -> int:
    """0 for the CUDA release that torch has, 1 where the wheel names the major version alone, 2 for another release."""
    mine = facts.torch.cuda if facts.torch else None
    if mine is None or not wheel.cuda or not wheel.torch or "." not in wheel.cuda:
        return 1
    return 0 if wheel.cuda.split(".")[:2] == mine.text.split(".")[:2] else 2
