"""What is examined: a host record, an intention, and what is asked for; and what was found."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import asdict

from flashdepot.errors import FlashdepotError, IncompatibleError, MissingToolError
from flashdepot.fit import served_cuda
from flashdepot.kernels import oldest_gpu
from flashdepot.model.environment import Environment, PythonEnvironment
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.request import Gpus, LibraryRequest
from flashdepot.model.selection import Unit
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve.facts import facts_of
from flashdepot.toolchain.architectures import ArchitectureChoice, choose_architectures


class Intention(str, Enum):
    """What somebody wants to do on a machine; its value is its word on the command line."""

    INSTALL = "install"
    BUILD = "build"
    LINK = "link"
    RUN = "run"

    def __str__(self) -> str:
        return self.value


class Severity(str, Enum):
    """How bad a finding is, worst first."""

    BLOCKER = "blocker"
    WARNING = "warning"
    NOTE = "note"

    def __str__(self) -> str:
        return self.value

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Finding(msgspec.Struct, frozen=True):
    """What was seen, why it matters, and the command or change that fixes it.

    ``class_id`` is the class of failure that it leads to; ``flashdepot explain`` uses the same words. A blocker with
    ``incompatible`` is one of hardware, driver or system; any other names a thing that is missing and can be added.
    """

    severity: Severity
    class_id: str
    seen: str
    why: str
    mend: str
    incompatible: bool = False

    @classmethod
    def of(cls, error: FlashdepotError, class_id: str, why: str) -> Finding:
        """The blocker that an error of the work itself would be, in its own words."""
        return cls(
            Severity.BLOCKER,
            class_id,
            error.message,
            why,
            error.hint,
            incompatible=isinstance(error, IncompatibleError),
        )

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {**asdict(self), "severity": self.severity.value}


def blocker(class_id: str, seen: str, why: str, mend: str, *, incompatible: bool = False) -> Finding:
    """A finding with which the intention cannot work."""
    return Finding(Severity.BLOCKER, class_id, seen, why, mend, incompatible=incompatible)


def warning(class_id: str, seen: str, why: str, mend: str) -> Finding:
    """A finding with which the intention may fail."""
    return Finding(Severity.WARNING, class_id, seen, why, mend)


def note(class_id: str, seen: str, why: str, mend: str) -> Finding:
    """A finding that is good to know and stops nothing."""
    return Finding(Severity.NOTE, class_id, seen, why, mend)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Blockers, of those what cannot be fixed by adding something first; then warnings, then notes."""
    return sorted(findings, key=lambda f: (f.severity.rank, not f.incompatible))


def verdict(findings: Iterable[Finding]) -> int:
    """The exit code: 0 when nothing blocks, 4 when hardware, driver or system do, 3 when something is missing."""
    blockers = [f for f in findings if f.severity is Severity.BLOCKER]
    if not blockers:
        return 0
    return IncompatibleError.exit_code if any(f.incompatible for f in blockers) else MissingToolError.exit_code


class Case(msgspec.Struct, frozen=True):
    """One examination. ``choice`` is what ``--arch`` comes to on this host, or the error that it comes to.

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
        """The architectures to serve; none when ``--arch`` comes to an error."""
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
