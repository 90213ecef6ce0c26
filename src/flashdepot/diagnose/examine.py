"""Which checks concern which intention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from flashdepot.diagnose import gpu_checks as gpu
from flashdepot.diagnose import python_checks as python
from flashdepot.diagnose import system_checks as space
from flashdepot.diagnose import system_checks as system
from flashdepot.diagnose import toolchain_checks as link
from flashdepot.diagnose import toolchain_checks as toolchain
from flashdepot.diagnose import toolchain_checks as variables
from flashdepot.diagnose import toolchain_checks as windows
from flashdepot.diagnose.case import Case, Finding, Intention, worst_first
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import Unit

Check = Callable[[Case], Iterator[Finding]]

_SPACE: Sequence[Check] = (space.memory, space.build_disks)

_CHECKS: Mapping[Intention, Sequence[Check]] = {
    Intention.RUN: (
        system.platform,
        system.libc,
        gpu.presence,
        gpu.driver,
        gpu.architectures,
        python.torch_on_gpu,
        gpu.stubs,
        gpu.shared_memory,
    ),
    Intention.INSTALL: (
        system.platform,
        system.libc,
        gpu.driver,
        gpu.architectures,
        python.interpreter,
        python.environment,
        python.torch,
        python.imports,
        python.torch_on_gpu,
        python.abi,
        python.published,
        python.builds,
        python.tools,
        space.install_disks,
        variables.places,
        system.conda_libstdcxx,
        gpu.presence,
    ),
    Intention.BUILD: (
        system.platform,
        system.libc,
        gpu.architectures,
        *_SPACE,
        toolchain.choice,
        toolchain.toolkits,
        windows.compilers,
        windows.folders,
        toolchain.git,
        toolchain.flags,
        variables.jobs,
        variables.architectures,
        variables.places,
        variables.two_toolkits,
        toolchain.torch_cuda,
        space.time_needed,
    ),
    Intention.LINK: (
        system.platform,
        system.libc,
        gpu.architectures,
        link.linker,
        gpu.driver,
        link.rust,
        link.cuda,
        link.large_files,
        link.build_systems,
    ),
}
"""In the order of causes: what comes first explains what follows."""


def examine(record: HostRecord, intention: Intention, request: LibraryRequest) -> list[Finding]:
    """The findings of a host record for an intention, worst first. Nothing but the record is looked at.

    :param request: its ``arch``, ``cuda``, ``profile`` and ``upstream`` matter here.
    """
    case = Case.of(record, intention, request)
    return worst_first(finding for check in _CHECKS[intention] for finding in check(case))


def forewarn(record: HostRecord, units: frozenset[Unit]) -> list[Finding]:
    """What to say before units are compiled: memory and disks. What else could stop a build, the build itself says."""
    case = Case.of(record, Intention.BUILD, LibraryRequest(), units)
    return worst_first(finding for check in _SPACE for finding in check(case))
