"""Whether something fits, and why not."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec
from msgspec.structs import asdict


class Verdict(str, Enum):
    """Whether a thing works where it is wanted. ``UNCERTAIN``: what is known cannot tell."""

    FITS = "fits"
    UNCERTAIN = "uncertain"
    MISFIT = "does not fit"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Verdict).index(self)


class Reason(msgspec.Struct, frozen=True):
    """Why something does not fit, or why that cannot be told.

    ``rule`` is the rule's id, ``wants`` what the thing is for and ``has`` what is there, in the rule's own terms
    (``2.7`` and ``2.8``); ``has`` is empty where nobody has told. ``text`` is the sentence, ``mend`` what would make
    it fit, or the option that tells what is not known.
    """

    rule: str
    verdict: Verdict
    wants: str
    has: str
    text: str
    mend: str

    @classmethod
    def misfit(cls, rule: str, wants: str, has: str, text: str, mend: str) -> Reason:
        """A rule that is broken."""
        return cls(rule, Verdict.MISFIT, wants, has, text, mend)

    @classmethod
    def uncertain(cls, rule: str, wants: str, has: str, text: str, mend: str) -> Reason:
        """A rule that cannot be judged by what is known."""
        return cls(rule, Verdict.UNCERTAIN, wants, has, text, mend)

    @property
    def clause(self) -> str:
        """The sentence without its subject: ``needs PyTorch 2.2 or newer, and this is 2.1.2``."""
        return self.text.removeprefix("It ").removesuffix(".")

    @property
    def lacks_fact(self) -> bool:
        """Whether a fact is missing that somebody could tell."""
        return not self.has and self.verdict is Verdict.UNCERTAIN

    def to_json(self) -> dict[str, str]:
        """All fields."""
        return {**asdict(self), "verdict": str(self.verdict)}


Reasons = tuple[Reason, ...]


def verdict_of(reasons: Iterable[Reason]) -> Verdict:
    """The worst verdict of some reasons; ``FITS`` without any."""
    return max((reason.verdict for reason in reasons), key=lambda verdict: verdict.rank, default=Verdict.FITS)
