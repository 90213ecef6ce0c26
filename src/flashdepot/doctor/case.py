"""What is examined: a host record, an intention, and what is asked for."""

from __future__ import annotations

import msgspec

from flashdepot.doctor.finding import Intention
from flashdepot.errors import IncompatibleError
from flashdepot.families import oldest_gpu
from flashdepot.fit import served_cuda
from flashdepot.model.architecture import Architecture
from flashdepot.model.environment import Environment
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.library_request import Gpus, LibraryRequest
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.model.selection import Unit
from flashdepot.model.target import Version
from flashdepot.resolve.facts import facts_of
from flashdepot.toolchain.architectures import ArchitectureChoice, choose_architectures


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
