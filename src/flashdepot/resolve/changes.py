"""What would change an answer. Each change is tried on the same facts, so that what is promised is what the next run shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.facts.torch_builds import default_cuda
from flashdepot.model.candidate import Decision, Judged
from flashdepot.model.environment import Environment
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.target import Platform
from flashdepot.model.wheel_request import COMMUNITY, MADE_HERE, OFFICIAL, WheelRequest
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.resolution import Resolution

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
    """A request with some options of ``resolve`` in the place of what they were."""
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
        if options := _options(miss.reason.rule, miss.best.candidate.wheel, miss.reason.wants, decision.facts):
            yield options


def _options(rule: str, wheel: PublishedWheel, wants: str, facts: Environment) -> dict[str, Any]:
    """What would have to be different for a wheel that breaks one rule alone; empty where no option says that."""
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
    return {names[rule]: wants} if rule in names and wants else {}


def _torch_cuda(wheel: PublishedWheel, facts: Environment) -> str | None:
    """The CUDA to name beside a torch; ``None`` where PyPI's build of it has one that the wheel takes."""
    minor = ".".join(wheel.torch.split(".")[:2])
    usual = default_cuda(minor) if facts.platform == Platform("linux", "x86_64") else None
    if not wheel.cuda or (usual is not None and str(usual.major) == wheel.cuda.partition(".")[0]):
        return None
    return _full(wheel.cuda)


def _full(cuda: str) -> str:
    """A release of CUDA where a wheel names a major version alone: any of it will do."""
    return cuda if "." in cuda else {"12": "12.8"}.get(cuda, f"{cuda}.0")
