"""A plan as a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashdepot.kernels import oldest_gpu
from flashdepot.model.candidate import Candidate, Judged, Origin, Plan
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.environment import NO_TORCH, Environment
from flashdepot.model.limits import duration, size
from flashdepot.resolve.decide import why_before
from flashdepot.resolve.plan import Help
from flashdepot.resolve.rules import RULES

_EXPLAINED = 3
_INDENT = " " * 13

_RULED_OUT = {
    "distribution": "another distribution",
    "version": "another version of it",
    "platform": "for another platform",
    "torch-with-cuda": "need a PyTorch that works with CUDA here",
    "torch": "for another torch",
    "torch-preview": "built before that torch was released",
    "cuda": "for another CUDA major version",
    "cxx11-abi": "of the other C++ ABI",
    "python": "for another Python",
    "libc": "need a newer C library",
    "gpu": "for newer GPUs",
    "sass": "no machine code for a GPU here",
    "driver": "need a newer driver",
    "source": "from sources that are not allowed, but otherwise fit",
}
"""What a :class:`Rejection` says of its wheels, by the rule that they break."""


def describe(plan: Plan, commands: Sequence[tuple[Help, str]] = ()) -> str:
    """The facts, the decision and what comes next, then what was ruled out, by what.

    :param commands: what would give a better answer.
    """
    lines = [describe_facts(plan.facts), ""]
    if plan.fatal is not None:
        return "\n".join([*lines, f"  {plan.fatal.text}", f"  {plan.fatal.fix}"])
    lines += _decided(plan) if plan.chosen else _undecided(plan)
    if commands:
        lines += ["", "  What would help:"]
        for helped, command in commands:
            lines += [f"    {_number(helped.fitting, 'candidate')} would fit, {helped.first.candidate.name} first,"]
            lines += [f"    {_cost(helped.first.candidate)}:", f"      {command}"]
    if plan.rejections:
        lines += ["", *_counts(plan)]
    return "\n".join(lines)


def describe_facts(facts: Environment) -> str:
    """What it must run on, in a line; what is not known is named as such."""
    torch = facts.torch
    libc = f"glibc {facts.libc}" if facts.libc else facts.libc_name
    is_linux = facts.platform is not None and facts.platform.system == "linux"
    parts = [
        f"{facts.platform or 'platform not known'}" + (f" with {libc or 'a C library not known'}" if is_linux else ""),
        f"Python {facts.python}" if facts.python else "Python not known",
        _torch(facts),
        f"GPU {', '.join(gpu.dotted for gpu in facts.gpus)}" if facts.gpus else "GPU not known",
        f"driver {facts.driver}" if facts.driver else "driver not known",
    ]
    if torch == NO_TORCH:
        parts[2] = "no torch"
    old = [gpu.dotted for gpu in facts.gpus if gpu not in facts.served(oldest_gpu())]
    note = f" Left out, too old for the kernels: {', '.join(old)}." if old else ""
    return f"For {'; '.join(parts)}.{note}"


def _torch(facts: Environment) -> str:
    torch = facts.torch
    if torch is None:
        return "torch not known"
    abi = {True: ", new C++ ABI", False: ", old C++ ABI", None: ""}[torch.cxx11_abi]
    implied = " (its default; --torch-cuda names another)" if "PyPI" in facts.origin_of("cuda") else ""
    cuda = (
        f" with CUDA {torch.cuda}{implied}" if torch.cuda else f" for {torch.accelerator}" if torch.accelerator else ""
    )
    return f"torch {torch.version}{cuda}{abi}"


def _decided(plan: Plan) -> Iterator[str]:
    chosen, second = plan.chosen, plan.runner_up
    assert chosen is not None  # noqa: S101  (for mypy)
    yield f"  take       {chosen.candidate.name}"
    if chosen.candidate.wheel.url:
        yield f"{_INDENT}{chosen.candidate.wheel.url}"
    yield from (f"{_INDENT}{line}" for line in _about(chosen, plan.facts))
    if second is not None:
        yield ""
        yield f"  runner-up  {second.candidate.name}"
        why = why_before(chosen, second, plan.facts)
        yield from (f"{_INDENT}{line}" for line in _about(second, plan.facts))
        if why:
            yield f"{_INDENT}comes second: {why}"
    for judged in plan.misfits:
        broken = next(reason for reason in judged.reasons if reason.verdict is Verdict.MISFIT)
        yield ""
        yield f"  not        {judged.candidate.name}: {broken.text}"
        yield f"{_INDENT}-> {broken.fix}"


def _undecided(plan: Plan) -> Iterator[str]:
    if plan.missing:
        yield "  A fact is missing. Give it (the values here are examples), or name the Python environment that the wheel is for:"
        yield from (f"    {option}" for option in plan.missing)
        return
    yield "  Nothing that may be taken is certain to work there."
    for judged in plan.misfits:
        yield ""
        yield f"  {judged.candidate.name}: {judged.verdict}"
        yield from _reasons(judged)
    if plan.uncertain:
        best = plan.uncertain[0]
        yield ""
        yield f"  most likely  {best.candidate.name}"
        yield from _reasons(best)


def _about(judged: Judged, facts: Environment) -> Iterator[str]:
    candidate = judged.candidate
    yield f"{_source(candidate)}; {_cost(candidate)}"
    if judged.verdict is Verdict.FITS:
        yield _fits(candidate, facts)
    if candidate.origin in {Origin.OFFICIAL, Origin.COMMUNITY} and not judged.verified:
        yield "its release should have it, but nobody has checked that the file exists"
    yield from (line.strip() for line in _reasons(judged))


def _source(candidate: Candidate) -> str:
    return {
        Origin.DEPOT: "ours, from the depot",
        Origin.REMOTE: "ours, from a remote",
        Origin.OURS: "ours, compiled here",
        Origin.INDEX: f"ours, from {candidate.wheel.source}",
        Origin.OFFICIAL: "official",
        Origin.COMMUNITY: f"community: {candidate.wheel.source}",
        Origin.PIP: "upstream's own source build",
    }[candidate.origin]


def _cost(candidate: Candidate) -> str:
    fetched = f"{'' if candidate.size_known else 'about '}{size(candidate.size)}, " if candidate.size else ""
    return f"{fetched}about {duration(candidate.seconds)} until it can be imported"


def _fits(candidate: Candidate, facts: Environment) -> str:
    wheel = candidate.wheel
    code = f"machine code for {','.join(wheel.sass)}" if wheel.sass else ""
    if candidate.origin in {Origin.DEPOT, Origin.REMOTE, Origin.OURS, Origin.INDEX}:
        return f"works with every torch and Python; CUDA {wheel.cuda}; {code}"
    abi = "" if facts.torch is None or facts.torch.cxx11_abi is None else ", its C++ ABI"
    return f"fits torch {wheel.torch or '?'}, CUDA {wheel.cuda.partition('.')[0]}{abi}, {facts.python}; {code}"


def _reasons(judged: Judged) -> Iterator[str]:
    for reason in judged.reasons:
        yield f"{_INDENT}{reason.text}"
        fix = str(reason.fix)
        # An option that tells a missing fact is an example: its value is nobody's answer.
        is_example = reason.verdict is Verdict.UNCERTAIN and fix.startswith("--")
        yield f"{_INDENT}-> {'give it, for example ' if is_example else ''}{fix}"


def _counts(plan: Plan) -> Iterator[str]:
    fit = len(plan.ranked)
    yield f"  {plan.considered:,} considered: {fit:,} fit, {len(plan.uncertain):,} may; left out are"
    width = max(len(f"{rejection.count:,}") for rejection in plan.rejections)
    for rejection in plan.rejections:
        nearest = f" (nearest: {rejection.nearest})" if rejection.nearest else ""
        yield f"    {rejection.count:>{width},}  {_RULED_OUT[rejection.rule]}{nearest}"


def describe_explained(named: str, found: Sequence[Judged], plan: Plan) -> str:
    """Why a wheel, or the nearest of those that were named, is not the chosen one, rule by rule."""
    lines = [describe_facts(plan.facts)]
    for judged in found[:_EXPLAINED]:
        lines += ["", f"  {judged.candidate.name}: {judged.verdict}", f"{_INDENT}{_source(judged.candidate)}"]
        lines += _reasons(judged)
        broken = {reason.id for reason in judged.reasons}
        lines.append(f"{_INDENT}keeps: {', '.join(rule.id for rule in RULES if rule.id not in broken)}")
        lines += _standing(judged, plan)
    if (more := len(found) - _EXPLAINED) > 0:
        lines += ["", f"  and {_number(more, 'other')} of {named}, which are no nearer"]
    return "\n".join(lines)


def _standing(judged: Judged, plan: Plan) -> list[str]:
    urls = [ranked.candidate.wheel.url for ranked in plan.ranked]
    chosen = plan.chosen
    if chosen is None or not judged.candidate.wheel.url or judged.candidate.wheel.url not in urls:
        return []
    place = urls.index(judged.candidate.wheel.url)
    if place == 0:
        return [f"{_INDENT}it is the one to take"]
    why = why_before(chosen, judged, plan.facts)
    before = f"; the first is {chosen.candidate.name}: {why}" if why else ""
    return [f"{_INDENT}it is number {place + 1} of {len(urls)} that fit{before}"]


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
