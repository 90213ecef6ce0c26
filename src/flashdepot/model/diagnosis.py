"""What was seen, why it matters, and the command or sentence that fixes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import asdict


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
        """What stands behind ``flashdepot`` on a command line."""
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
        return shlex.join(["flashdepot", *self.words])


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
