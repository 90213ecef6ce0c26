"""Which checks concern which intention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from flashdepot.diagnose import gpu_checks as gpu
from flashdepot.diagnose import python_checks as python
from flashdepot.diagnose import system_checks as system
from flashdepot.diagnose import toolchain_checks as toolchain
from flashdepot.diagnose.case import Case, Intention
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import Unit

Check = Callable[[Case], Iterator[Diagnosis]]

_SYSTEM: Sequence[Check] = (system.platform, system.libc)
_SPACE: Sequence[Check] = (system.memory, system.build_disks)

_CHECKS: Mapping[Intention, Sequence[Check]] = {
    Intention.RUN: (
        *(*_SYSTEM, gpu.presence, gpu.driver, gpu.architectures),
        *(python.torch_on_gpu, gpu.stubs, gpu.shared_memory),
    ),
    Intention.INSTALL: (
        *(*_SYSTEM, gpu.driver, gpu.architectures, python.of_environment),
        *(system.install_disks, toolchain.places, system.conda_libstdcxx, gpu.presence),
    ),
    Intention.BUILD: (
        *(*_SYSTEM, gpu.architectures, *_SPACE),
        *(toolchain.choice, toolchain.toolkits, toolchain.folders, toolchain.git, toolchain.flags, toolchain.jobs),
        *(toolchain.architectures, toolchain.places, toolchain.two_toolkits, toolchain.torch_cuda),
        *(python.source_build, system.time_needed),
    ),
    Intention.LINK: (
        *(*_SYSTEM, gpu.architectures, toolchain.linker, gpu.driver),
        *(toolchain.rust, toolchain.cuda, toolchain.large_files, toolchain.build_systems),
    ),
}
"""In the order of causes: what comes first explains what follows."""


def examine(record: HostRecord, intention: Intention, request: LibraryRequest) -> list[Diagnosis]:
    """The findings of a host record for an intention, worst first. Nothing but the record is checked.

    :param request: its ``arch``, ``cuda``, ``profile`` and ``upstream`` matter here.
    """
    return _worst_first(_CHECKS[intention], Case.of(record, intention, request))


def forewarn(record: HostRecord, units: frozenset[Unit]) -> list[Diagnosis]:
    """What to say before units are compiled: memory and disks. What else could stop a build, the build itself says."""
    return _worst_first(_SPACE, Case.of(record, Intention.BUILD, LibraryRequest(), units))


def _worst_first(checks: Sequence[Check], case: Case) -> list[Diagnosis]:
    """What is ruled out, then what is missing; then warnings, then notes."""
    return sorted((finding for check in checks for finding in check(case)), key=lambda finding: finding.severity.rank)
