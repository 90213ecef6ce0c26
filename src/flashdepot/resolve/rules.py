"""What the resolver asks of a published wheel: what was wished for, and every rule of fit.

A rule reads a few fields of a wheel and nothing else of it. Thousands of wheels have few distinct values in those, so
each rule runs once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from flashdepot.fit import rules as fit
from flashdepot.fit.names import READERS
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.verdict import Reason, Reasons, Verdict
from flashdepot.model.wheel_request import WheelRequest
from flashdepot.resolve.wish_rules import judge_distribution, judge_source, judge_version


class WheelRule(msgspec.Struct, frozen=True):
    """One rule: ``sentence`` says what must hold, ``source`` where the fact comes from.

    ``judge`` takes the request and the wheel's ``fields``, and returns ``None`` for a wheel that keeps the rule.
    """

    id: str
    sentence: str
    source: str
    fields: tuple[str, ...]
    judge: Callable[..., Reason | None]

    @classmethod
    def of(cls, rule: fit.Rule) -> WheelRule:
        """A rule of fit, asked about what a wheel's name tells."""
        reader = READERS[rule.part]

        def judge(request: WheelRequest, *values: Any) -> Reason | None:
            return rule(request.facts, reader.read(*values))

        return cls(rule.id, rule.sentence, rule.source, reader.fields, judge)

    def reads(self) -> Callable[[PublishedWheel], Any]:
        """What takes the fields out of a wheel: one value, or a tuple of several."""
        return itemgetter(*map(PublishedWheel._fields.index, self.fields))

    def against(self, request: WheelRequest, values: Iterable[Any]) -> dict[Any, Reason]:
        """The reason against each value of the fields that breaks the rule."""
        several = len(self.fields) > 1
        judged = ((value, self.judge(request, *value) if several else self.judge(request, value)) for value in values)
        return {value: reason for value, reason in judged if reason is not None}

    def __call__(self, request: WheelRequest, wheel: PublishedWheel) -> Reason | None:
        """Judge one wheel."""
        return self.judge(request, *(getattr(wheel, field) for field in self.fields))


RULES: Sequence[WheelRule] = (
    WheelRule(
        "distribution",
        "It is the distribution that was asked for.",
        "import names in upstream's setup.py and hopper/setup.py",
        ("distribution",),
        judge_distribution,
    ),
    WheelRule(
        "version",
        "It has the version that was asked for; without one, a version 2 of flash-attn.",
        "PEP 440; upstream's README on version 1 and 2",
        ("distribution", "version"),
        judge_version,
    ),
    *map(WheelRule.of, fit.RULES),
    WheelRule(
        "source",
        "It is of a source that may be taken.",
        "official sources are taken by default, others by those who name them",
        ("source",),
        judge_source,
    ),
)
"""In the order in which a person would ask; a wheel that breaks several is counted under the first."""


def judge(request: WheelRequest, wheel: PublishedWheel) -> Reasons:
    """Every reason against one wheel, in the order of :data:`RULES`; empty when it fits."""
    return tuple(reason for rule in RULES if (reason := rule(request, wheel)) is not None)


def judge_all(request: WheelRequest, wheels: Sequence[PublishedWheel]) -> list[Reasons]:
    """The reasons against each of many wheels, in their order.

    A wheel that has broken two rules is not asked about more of them: nothing but :func:`judge` wants to know.
    """
    found: list[Reasons] = [()] * len(wheels)
    broken: set[int] = set()
    asked: Sequence[int] = range(len(wheels))
    for rule in RULES:
        keys = list(map(rule.reads(), map(wheels.__getitem__, asked)))
        against = rule.against(request, set(keys))
        if not against:
            continue
        done: set[int] = set()
        for index, reason in zip(asked, map(against.get, keys), strict=True):
            if reason is None:
                continue
            found[index] += (reason,)
            if reason.verdict is Verdict.MISFIT:
                (done if index in broken else broken).add(index)
        if done:
            asked = [index for index in asked if index not in done]
    return found
