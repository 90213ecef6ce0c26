"""What was observed, why it matters, and the command or sentence that fixes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from flashdepot.model.codec import FixedWord
from flashdepot.model.limits import joined


class Command(msgspec.Struct, frozen=True):
    """A verb of flashdepot and its options, by the names of the fields that they fill.

    An option that is ``None``, false or empty is left out; ``True`` is a flag, and a tuple is repeated.
    """

    verb: str
    options: Mapping[str, Any] = {}
    arguments: tuple[str, ...] = ()

    def but(self, **options: Any) -> Command:
        """The same with some options changed."""
        return Command(self.verb, {**self.options, **options}, self.arguments)

    @property
    def words(self) -> list[str]:
        """The words after ``flashdepot`` on a command line."""
        return [*self.verb.split(), *self.arguments, *self._spelled()]

    def _spelled(self) -> Iterator[str]:
        for name, value in self.options.items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                yield option
                continue
            for one in value if isinstance(value, (tuple, list)) else (value,):
                if one not in {None, False, ""}:
                    yield from (option, str(one))

    def __str__(self) -> str:
        return joined(["flashdepot", *self.words])


class Verdict(FixedWord):
    """Whether a thing works where it is wanted, best first. ``UNCERTAIN``: what is known cannot tell."""

    FITS = "fits"
    UNCERTAIN = "uncertain"
    MISFIT = "does not fit"


class Severity(FixedWord):
    """How bad something is, worst first.

    ``MISFIT`` is ruled out by hardware, driver, system or what a file is; a ``BLOCKER`` lacks what can be added.
    ``UNCERTAIN``: what is known cannot tell. A ``WARNING`` may fail, and a ``NOTE`` stops nothing.
    """

    MISFIT = "does not fit"
    BLOCKER = "blocker"
    UNCERTAIN = "uncertain"
    WARNING = "warning"
    NOTE = "note"


class Diagnosis(msgspec.Struct, frozen=True):
    """What was observed, what was expected, and what fixes it: the one type for that, of rules, doctor and checks alike.

    ``id`` is the rule's, or the class of failure that it leads to. ``observed`` and ``expected`` are sentences (what was
    seen, why it matters), or the terms of a rule (``2.8`` and ``2.7``), and then ``text`` is the sentence; ``observed`` is
    empty where it is not known. ``fix`` is a command, made from the same options that the command line reads, or a
    sentence; ``str()`` of either is what is printed.

    Typical usage::

        Diagnosis("no-torch", Severity.BLOCKER, "There is no PyTorch.", "flash_attn imports it.", "Install it first.")
        Diagnosis.misfit("sass", "80", "90", "It has machine code for 80.", Command("get", {"arch": "90"}))
    """

    id: str
    severity: Severity
    observed: str
    expected: str
    fix: Command | str
    text: str = ""

    @classmethod
    def misfit(cls, rule: str, expected: str, observed: str, text: str, fix: Command | str) -> Diagnosis:
        """A rule that is broken."""
        return cls(rule, Severity.MISFIT, observed, expected, fix, text)

    @classmethod
    def uncertain(cls, rule: str, expected: str, observed: str, text: str, fix: Command | str) -> Diagnosis:
        """A rule that cannot be judged by what is known; ``fix`` may be the option that tells it."""
        return cls(rule, Severity.UNCERTAIN, observed, expected, fix, text)

    def __repr__(self) -> str:
        return f"<{self.severity}: {self.sentence[:100]}>"

    @property
    def verdict(self) -> Verdict:
        """What it says of the thing that it is about."""
        if self.severity in {Severity.MISFIT, Severity.BLOCKER}:
            return Verdict.MISFIT
        return Verdict.UNCERTAIN if self.severity is Severity.UNCERTAIN else Verdict.FITS

    @property
    def sentence(self) -> str:
        """What was observed, and why it matters."""
        return self.text or f"{self.observed} {self.expected}"

    @property
    def clause(self) -> str:
        """The sentence without its subject: ``needs PyTorch 2.2 or newer, and this is 2.1.2``."""
        return self.text.removeprefix("It ").removesuffix(".")

    @property
    def lacks_fact(self) -> bool:
        """Whether a fact is missing that somebody could tell."""
        return not self.observed and self.severity is Severity.UNCERTAIN

    def to_json(self) -> dict[str, str]:
        """A reason as ``--json`` prints it."""
        return {
            "rule": self.id,
            "verdict": str(self.verdict),
            "wants": self.expected,
            "has": self.observed,
            "text": self.text,
            "fix": str(self.fix),
        }


Reasons = tuple[Diagnosis, ...]


def verdict_of(reasons: Iterable[Diagnosis]) -> Verdict:
    """The worst verdict of some reasons; ``FITS`` without any."""
    return max((reason.verdict for reason in reasons), key=lambda verdict: verdict.rank, default=Verdict.FITS)
