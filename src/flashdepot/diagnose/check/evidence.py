"""What a check found: a verdict, and a line of evidence for each thing that was checked."""

from __future__ import annotations

from typing import Any

import msgspec

from flashdepot.model.codec import FixedWord, plain
from flashdepot.model.diagnosis import Diagnosis, Verdict


class Outcome(FixedWord):
    """How one comparison ended, a worse one after a better; a report ends as its worst line did.

    A ``NOTE`` is a fact that was asked of nothing: no GPU, no Python or no CUDA version was named to compare it with.
    """

    NOTE = "note"
    FITS = "fits"
    UNKNOWN = "cannot tell"
    MISFIT = "does not fit"
    DAMAGED = "damaged"

    @property
    def exit_code(self) -> int:
        """0 fits, 3 a fact is missing, 4 does not fit, 6 damaged."""
        return {Outcome.UNKNOWN: 3, Outcome.MISFIT: 4, Outcome.DAMAGED: 6}.get(self, 0)


class Evidence(msgspec.Struct, frozen=True, rename={"has": "environment"}):
    """One comparison: what the file needs or says (``seen``), what the environment has, and what fixes a misfit.

    ``topic`` is what was compared, in the field's words; ``where`` the compiled file, for a wheel's.
    """

    outcome: Outcome
    topic: str
    seen: str
    has: str = ""
    where: str = ""
    fix: str = ""


OUTCOMES = {Verdict.FITS: Outcome.FITS, Verdict.UNCERTAIN: Outcome.UNKNOWN, Verdict.MISFIT: Outcome.MISFIT}
"""What a verdict of fit is as a line of evidence."""


def evidence_of(reason: Diagnosis | None, topic: str, seen: str, has: str) -> Evidence:
    """The line for what a rule of fit said; ``None`` says that it is kept."""
    if reason is None:
        return Evidence(Outcome.FITS, topic, seen, has)
    return Evidence(OUTCOMES[reason.verdict], topic, seen, has, fix=str(reason.fix))


class Report(msgspec.Struct, frozen=True):
    """The verdict on one file, worst evidence first, and what is known of it as JSON."""

    path: str
    kind: str
    evidence: tuple[Evidence, ...]
    facts: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Report: {self.path} {self.verdict.value}>"

    @property
    def verdict(self) -> Outcome:
        """The worst outcome; what nothing speaks against fits."""
        worst = max((e.outcome for e in self.evidence), key=lambda outcome: outcome.rank, default=Outcome.FITS)
        return Outcome.FITS if worst is Outcome.NOTE else worst

    def to_json(self) -> dict[str, Any]:
        """The report as ``--json`` prints it."""
        return {
            "file": self.path,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "evidence": [plain(e) for e in self.evidence],
            "facts": self.facts,
        }


def worst_evidence_first(evidence: list[Evidence]) -> tuple[Evidence, ...]:
    """The lines by how bad they are, otherwise in the order given."""
    return tuple(sorted(evidence, key=lambda e: -e.outcome.rank))
