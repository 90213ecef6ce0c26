"""What the resolver asks of a published wheel: what was wished for, and every rule of fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from flashdepot.errors import UsageError
from flashdepot.fit import rules as fit
from flashdepot.fit.needs import READERS
from flashdepot.model.candidate import PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Reasons, Severity
from flashdepot.model.wheel import COMMUNITY, FLASH_ATTN, OFFICIAL, OURS


def judge_distribution(request: WheelRequest, distribution: str) -> Diagnosis | None:
    """flash-attn and flash-attn-3 have other modules and other functions."""
    if distribution == request.distribution:
        return None
    text = f"It is {distribution}, and {request.distribution} was asked for."
    return Diagnosis.misfit("distribution", distribution, request.distribution, text, f"--distribution {distribution}")


def judge_version(request: WheelRequest, distribution: str, version: str) -> Diagnosis | None:
    """The version that was asked for; version 1 of flash-attn has another interface and is taken only by name."""
    if not request.version:
        if distribution != FLASH_ATTN or not version.startswith("1."):
            return None
        text = f"It is {distribution} {version}; version 2 is taken where none is named."
        return Diagnosis.misfit("version", version, "2.x", text, f"--version {version}")
    if matches(request.version, version):
        return None
    text = f"It is {distribution} {version}, and {request.version} was asked for."
    return Diagnosis.misfit("version", version, request.version, text, f"--version {version}")


def judge_source(request: WheelRequest, source: str) -> Diagnosis | None:
    """Wheels of others than upstream are taken only by those who name them."""
    if request.allows(source):
        return None
    text = f"It is of the collection {source}, which was not allowed."
    of_others = source not in {OURS, OFFICIAL}
    fix = f"--allow {COMMUNITY}, or only this collection: --source {COMMUNITY}:{source}"
    allowed = ", ".join(sorted(request.sources))
    return Diagnosis.misfit("source", source, allowed, text, fix if of_others else f"--source {source}")


@lru_cache(maxsize=1024)
def matches(asked: str, version: str) -> bool:
    """Whether a version is one that was asked for.

    ``2.8.3`` is only that one, ``2.8`` all that begin with it, anything with an operator a PEP 440 specifier.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415  (most ask for no version)

    plain = asked[:1].isdecimal()
    release = asked.removesuffix(".*")
    short = plain and release.replace(".", "").isdecimal() and release.count(".") < 2  # noqa: PLR2004
    try:
        specifier = SpecifierSet(f"=={release}.*" if short else f"=={asked}" if plain else asked)
    except InvalidSpecifier:
        raise UsageError(
            f"'{asked}' is not a version: expected one such as 2.8.3, 2.8, or '>=2.7,<2.8'.",
            hint="'flashdepot resolve' without --version takes the newest that fits.",
            meant=(asked, asked.removeprefix("v").replace(".x", ".*")),
        ) from None
    return specifier.contains(version, prereleases=True)


class WheelRule(NamedTuple):
    """``judge`` takes the request and the wheel's ``fields``, and returns ``None`` for a wheel that keeps the rule."""

    id: str
    fields: tuple[str, ...]
    judge: Callable[..., Diagnosis | None]

    @classmethod
    def of(cls, rule: fit.Rule) -> WheelRule:
        """A rule of fit, asked about what a wheel's name tells."""
        reader = READERS[rule.part]

        def judge(request: WheelRequest, *values: Any) -> Diagnosis | None:
            return rule(request.facts, reader.read(*values))

        return cls(rule.id, reader.fields, judge)


RULES: Sequence[WheelRule] = (
    WheelRule("distribution", ("distribution",), judge_distribution),  # import names in upstream's two setup.py
    WheelRule("version", ("distribution", "version"), judge_version),  # PEP 440; upstream's README on version 1 and 2
    *map(WheelRule.of, fit.RULES),
    WheelRule("source", ("source",), judge_source),
)
"""In the order in which a person would ask; a wheel that breaks several is counted under the first."""


def judge(request: WheelRequest, wheel: PublishedWheel) -> Reasons:
    """Every reason against one wheel, in the order of :data:`RULES`; empty when it fits."""
    asked = (rule.judge(request, *(getattr(wheel, field) for field in rule.fields)) for rule in RULES)
    return tuple(reason for reason in asked if reason is not None)


class _Answers(dict[Any, "Diagnosis | None"]):
    """What a rule says of each value of the fields that it reads: thousands of wheels have few distinct ones."""

    def __init__(self, rule: WheelRule, request: WheelRequest) -> None:
        super().__init__()
        self._rule, self._request = rule, request

    def __missing__(self, value: Any) -> Diagnosis | None:
        values = value if len(self._rule.fields) > 1 else (value,)
        reason = self[value] = self._rule.judge(self._request, *values)
        return reason


def judge_all(
    request: WheelRequest, wheels: Iterable[PublishedWheel]
) -> Iterator[tuple[PublishedWheel, Diagnosis | None, Reasons]]:
    """Each of many wheels, with the first rule that it breaks, and all reasons against it.

    There are no reasons of what breaks several: nobody wants to know more of it.
    """
    rules = [_asked(rule, request) for rule in RULES]
    for wheel in wheels:
        reasons: list[Diagnosis] = []
        misfit = None
        for fields, answers in rules:
            reason = answers[fields(wheel)]
            if reason is None:
                continue
            if reason.severity is Severity.MISFIT:
                if misfit is not None:
                    yield wheel, misfit, ()
                    break
                misfit = reason
            reasons.append(reason)
        else:
            yield wheel, misfit, tuple(reasons)


_RULES_OUT_MOST = ("torch", "python", "version", "cuda", "platform", "source")


def unbroken(request: WheelRequest, wheels: Iterable[PublishedWheel]) -> Iterator[PublishedWheel]:
    """Of many wheels those that break no rule. What rules out most is asked first, so that most are asked once."""
    first = [rule for name in _RULES_OUT_MOST for rule in RULES if rule.id == name]
    rules = [_asked(rule, request) for rule in (*first, *(rule for rule in RULES if rule not in first))]
    for wheel in wheels:
        for fields, answers in rules:
            reason = answers[fields(wheel)]
            if reason is not None and reason.severity is Severity.MISFIT:
                break
        else:
            yield wheel


def _asked(rule: WheelRule, request: WheelRequest) -> tuple[Callable[[PublishedWheel], Any], _Answers]:
    return itemgetter(*map(PublishedWheel._fields.index, rule.fields)), _Answers(rule, request)
