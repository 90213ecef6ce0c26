"""What the resolver asks of a published wheel: what was wished for, and every rule of fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from flashdepot.catalog.load import Lot, lots_of
from flashdepot.errors import UsageError
from flashdepot.fit import rules as fit
from flashdepot.fit.needs import READERS
from flashdepot.model.candidate import COMMUNITY, FLASH_ATTN, MADE_HERE, OFFICIAL, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Reasons, Verdict


def judge_distribution(request: WheelRequest, distribution: str) -> Diagnosis | None:
    """flash-attn and flash-attn-3 have other modules and other functions."""
    if distribution == request.distribution:
        return None
    text = f"It is {distribution}, and {request.distribution} was asked for."
    return Diagnosis.misfit("distribution", distribution, request.distribution, text, f"--distribution {distribution}")


def judge_version(request: WheelRequest, distribution: str, version: str) -> Diagnosis | None:
    """The version that was asked for; version 1 of flash-attn has another interface and is taken by name alone."""
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
    of_others = source not in {*MADE_HERE, OFFICIAL}
    fix = f"--allow {COMMUNITY}, or only this collection: --source {COMMUNITY}:{source}"
    allowed = ", ".join(sorted(request.sources))
    return Diagnosis.misfit("source", source, allowed, text, fix if of_others else f"--source {source}")


@lru_cache(maxsize=1024)
def matches(asked: str, version: str) -> bool:
    """Whether a version is one that was asked for.

    ``2.8.3`` is that one alone, ``2.8`` all that begin with it, anything with an operator a PEP 440 specifier.

    :raises UsageError: when what was asked for is neither.
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
        ) from None
    return specifier.contains(version, prereleases=True)


class WheelRule(msgspec.Struct, frozen=True):
    """One rule: ``sentence`` says what must hold, ``source`` where the fact comes from.

    ``judge`` takes the request and the wheel's ``fields``, and returns ``None`` for a wheel that keeps the rule.
    """

    id: str
    sentence: str
    source: str
    fields: tuple[str, ...]
    judge: Callable[..., Diagnosis | None]

    @classmethod
    def of(cls, rule: fit.Rule) -> WheelRule:
        """A rule of fit, asked about what a wheel's name tells."""
        reader = READERS[rule.part]

        def judge(request: WheelRequest, *values: Any) -> Diagnosis | None:
            return rule(request.facts, reader.read(*values))

        return cls(rule.id, rule.sentence, rule.source, reader.fields, judge)

    def reads(self) -> Callable[[PublishedWheel], Any]:
        """What takes the fields out of a wheel: one value, or a tuple of several."""
        return itemgetter(*map(PublishedWheel._fields.index, self.fields))

    def against(self, request: WheelRequest, values: Iterable[Any]) -> dict[Any, Diagnosis]:
        """The reason against each value of the fields that breaks the rule."""
        several = len(self.fields) > 1
        judged = ((value, self.judge(request, *value) if several else self.judge(request, value)) for value in values)
        return {value: reason for value, reason in judged if reason is not None}

    def __call__(self, request: WheelRequest, wheel: PublishedWheel) -> Diagnosis | None:
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


class JudgedAlike(NamedTuple):
    """Wheels of one lot that the same reasons speak against.

    ``misfit`` is the first rule that they break, ``None`` where they break none. ``alone`` says that they break no other,
    and that ``reasons`` are all that speak against them: of those that break several, nobody wants to know more.
    """

    lot: Lot
    rows: Sequence[int]
    reasons: Reasons
    misfit: Diagnosis | None = None
    alone: bool = False

    @property
    def wheels(self) -> Iterator[PublishedWheel]:
        """Each of them."""
        return map(self.lot.wheels.__getitem__, self.rows)


Numbered = tuple[int, Diagnosis]
"""A reason with the number of its rule."""


def judge_all(request: WheelRequest, wheels: Sequence[PublishedWheel]) -> Iterator[JudgedAlike]:
    """Many wheels, those together that the same reasons speak against."""
    of_python = next(number for number, rule in enumerate(RULES) if "python" in rule.fields)
    judge_python = cache(partial(RULES[of_python].judge, request))
    lots = list(lots_of(wheels))
    found, first, several = _judge_lots(request, lots, of_python)
    for index, lot in enumerate(lots):
        if index in several and first[index][0] < of_python:
            misfit = first[index][1]
            yield JudgedAlike(lot, lot.rows, (misfit,), misfit)
            continue
        rows: dict[tuple[str, str], list[int]] = {}
        for row in lot.rows:
            rows.setdefault(lot.pythons[row], []).append(row)
        for tags, members in rows.items():
            python = judge_python(lot.like.source, *tags)
            yield _batch(
                lot, members, sorted((*found[index], (of_python, python)), key=_NUMBER) if python else found[index]
            )


_NUMBER = itemgetter(0)


def _batch(lot: Lot, rows: Sequence[int], numbered: Iterable[Numbered]) -> JudgedAlike:
    reasons = tuple(reason for _, reason in numbered)
    misfits = [reason for reason in reasons if reason.verdict is Verdict.MISFIT]
    return JudgedAlike(lot, rows, reasons, misfits[0] if misfits else None, alone=len(misfits) == 1)


def _judge_lots(
    request: WheelRequest, lots: Sequence[Lot], but: int
) -> tuple[Sequence[tuple[Numbered, ...]], Mapping[int, Numbered], set[int]]:
    """By all rules but one: the reasons against each of many lots; the first that it breaks; which break more."""
    found: list[tuple[Numbered, ...]] = [()] * len(lots)
    first: dict[int, Numbered] = {}
    several: set[int] = set()
    likes = [lot.like for lot in lots]
    asked: Sequence[int] = range(len(lots))
    for number, rule in enumerate(RULES):
        if number == but:
            continue
        keys = list(map(rule.reads(), map(likes.__getitem__, asked)))
        against = {value: (number, reason) for value, reason in rule.against(request, set(keys)).items()}
        if not against:
            continue
        before = len(several)
        for index, reason in zip(asked, map(against.get, keys), strict=True):
            if reason is None:
                continue
            found[index] += (reason,)
            if reason[1].verdict is Verdict.MISFIT and first.setdefault(index, reason) is not reason:
                several.add(index)
        if len(several) > before:
            asked = [index for index in asked if index not in several]
    return found, first, several
