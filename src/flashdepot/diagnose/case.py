"""What is examined: a host record, an intention, and what is asked for; and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from flashdepot.errors import FlashdepotError, IncompatibleError, MissingToolError
from flashdepot.facts.gpus import ArchitectureChoice, choose_architectures
from flashdepot.fit.rules import served_cuda
from flashdepot.kernels import oldest_gpu
from flashdepot.model.codec import FixedWord
from flashdepot.model.diagnosis import Diagnosis, Severity
from flashdepot.model.environment import Environment, PythonEnvironment
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.request import Gpus, LibraryRequest
from flashdepot.model.selection import Unit
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve.facts import facts_of


class Intention(FixedWord):
    """What somebody wants to do on a machine; its value is its word on the command line."""

    INSTALL = "install"
    BUILD = "build"
    LINK = "link"
    RUN = "run"


def _of(severity: Severity) -> Callable[[str, str, str, str], Diagnosis]:
    return lambda class_id, seen, why, fix: Diagnosis(class_id, severity, seen, why, fix)


misfit = _of(Severity.MISFIT)
"""What hardware, driver, system or interpreter rule out: nothing that is added to this machine helps."""
blocker = _of(Severity.BLOCKER)
"""Something is missing that can be added, and without it the intention cannot work."""
warning = _of(Severity.WARNING)
"""Something with which the intention may fail."""
note = _of(Severity.NOTE)
"""Something that is good to know and stops nothing."""


def foreseen(error: FlashdepotError, class_id: str, why: str) -> Diagnosis:
    """What an error of the work itself would say, in its own words."""
    make = misfit if isinstance(error, IncompatibleError) else blocker
    return make(class_id, error.message, why, error.hint)


def to_json(finding: Diagnosis) -> dict[str, Any]:
    """A finding as ``--json`` prints it."""
    return {
        "severity": severity_word(finding),
        "class_id": finding.id,
        "seen": finding.observed,
        "why": finding.expected,
        "fix": str(finding.fix),
        "incompatible": finding.severity is Severity.MISFIT,
    }


def severity_word(finding: Diagnosis) -> str:
    """``blocker``, ``warning`` or ``note``: what is ruled out is in the way as well."""
    return str(Severity.BLOCKER if finding.severity is Severity.MISFIT else finding.severity)


def verdict(findings: Iterable[Diagnosis]) -> int:
    """The exit code: 0 when nothing blocks, 4 when hardware, driver or system do, 3 when something is missing."""
    severities = {finding.severity for finding in findings}
    if Severity.MISFIT in severities:
        return IncompatibleError.exit_code
    return MissingToolError.exit_code if Severity.BLOCKER in severities else 0


class Case(msgspec.Struct, frozen=True):
    """One examination. ``choice`` is what ``--arch`` means on this host, or the error that it raises.

    ``units`` are those to be compiled, ``None`` where that is not known yet.
    """

    record: HostRecord
    intention: Intention
    request: LibraryRequest
    choice: ArchitectureChoice | IncompatibleError
    units: frozenset[Unit] | None = None

    @classmethod
    def of(
        cls, record: HostRecord, intention: Intention, request: LibraryRequest, units: frozenset[Unit] | None = None
    ) -> Case:
        """Work out the architectures."""
        try:
            choice = choose_architectures(request.arch or Gpus.NATIVE, record, oldest_gpu())
            return cls(record, intention, request, choice, units)
        except IncompatibleError as error:
            return cls(record, intention, request, error, units)

    @property
    def wanted(self) -> tuple[Architecture, ...]:
        """The architectures to serve; none when ``--arch`` is an error."""
        return self.choice.wanted if isinstance(self.choice, ArchitectureChoice) else ()

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the kernels run on."""
        return tuple(g for g in self.record.gpus if g.architecture >= oldest_gpu())

    @property
    def driver_cuda(self) -> Version | None:
        """The newest CUDA that the driver serves, as recorded or by the table."""
        return served_cuda(self.facts)

    @property
    def facts(self) -> Environment:
        """What the rules of fit ask of the record."""
        return facts_of(self.record)

    @property
    def python(self) -> PythonEnvironment | None:
        """The Python environment of the record."""
        return self.record.python

    def has_program(self, name: str) -> bool | None:
        """Whether a program is on ``PATH``; ``None`` where nobody looked."""
        return None if self.record.programs is None else name in self.record.programs
