"""Which nvcc and which host compiler build for a request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.events import OnFile
from flashdepot.facts.compilers import BUILD_TOOLS, host_compiler_limits, installable_msvc, msvc_limits
from flashdepot.facts.drivers import driver_floor
from flashdepot.facts.gpus import codes_of
from flashdepot.model.architecture import Architecture
from flashdepot.model.host import CudaToolkit, HostCompiler, HostRecord
from flashdepot.model.library_request import CudaChoice
from flashdepot.model.target import Version
from flashdepot.toolchain.architectures import choose_sass
from flashdepot.toolchain.msvc import environment_for
from flashdepot.toolchain.nvcc import Nvcc, inspect, named_root
from flashdepot.toolchain.wheels import provide, provided_version, provides
from flashdepot.toolchain.zig import Zig, provide_zig

OLDEST_CUDA = Version("12.0")
"""The oldest CUDA whose compiler builds the CUTLASS of the supported upstream versions as C++17."""


@dataclass(frozen=True)
class Toolchain:
    """An nvcc, the host compiler that it calls, and a sentence on why this one.

    ``environment`` is what these programs need to find in their environment besides this process's own. ``named`` says
    that somebody named the toolkit's folder.
    """

    nvcc: Nvcc
    cxx: HostCompiler
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    named: bool = False
    zig: Zig | None = None

    @classmethod
    def of(cls, nvcc: Nvcc, host: HostRecord, reason: str, *, named: bool = False) -> Toolchain:
        """An nvcc with the host's first compiler that it accepts, whose environment is loaded.

        :raises MissingToolError: when it accepts none, or the environment cannot be loaded.
        """
        cxx = compiler_for(nvcc, host)
        return cls(nvcc, cxx, reason, environment_for(cxx), named)

    def whole_environment(self) -> dict[str, str]:
        """The environment to run these programs in."""
        return {**os.environ, **self.environment}


def choose_toolchain(
    option: CudaChoice,
    host: HostRecord,
    wanted: Sequence[Architecture],
    *,
    driver: Version | None,
    folder: Path,
    on_file: OnFile,
) -> Toolchain:
    """Find or provide the nvcc that ``--cuda`` asks for.

    ``auto`` takes the first toolkit of the host that can do the work, else the one from PyPI; a version such as
    ``13.0`` takes a toolkit of that version, else the one from PyPI if it is that; a folder is taken as it is.

    :param driver: the driver that the result must run with; ``None`` when there is none.
    :param folder: where a provided toolkit is kept.
    :raises MissingToolError: when no nvcc or no host compiler can do it; it says why each that was found cannot.
    :raises IncompatibleError: when the host's driver cannot run what the only usable nvcc builds.
    """
    if isinstance(option, Path):
        named = inspect(named_root(option))
        if problem := _unfit(named, host, wanted, driver=None):
            raise MissingToolError(f"The CUDA toolkit in {named.root} cannot be used: it {problem}.")
        return Toolchain.of(named, host, f"asked for: --cuda {option}", named=True)
    version = option if isinstance(option, Version) else None
    looked = (_inspected(t) for t in _of_release(host.toolkits, version))
    nvcc, found_by, rejected = _first_fit(looked, host, wanted, driver)
    if nvcc is not None:
        return Toolchain.of(nvcc, host, f"the host's own, found by {found_by}")
    _require_providable(version, host, driver, rejected)
    provided = inspect(provide(host.platform, folder, on_file))
    _require_fit(provided, host, wanted, driver)
    why = f" ({'; '.join(rejected)})" if rejected else ""
    return Toolchain.of(provided, host, f"provided from PyPI{why}")


def provide_toolchain(
    option: CudaChoice,
    host: HostRecord,
    wanted: Sequence[Architecture],
    *,
    folder: Path,
    work: Path,
    on_file: OnFile,
) -> Toolchain:
    """The toolchain for any target: nvcc and zig from PyPI, and nothing of this machine unless a folder names it.

    :param work: a folder for what zig writes while it works.
    :raises MissingToolError: when the nvcc that was named cannot do it, or another version than the provided one is
        asked for.
    """
    zig = provide_zig(host.platform, folder, on_file)
    if isinstance(option, Path):
        nvcc, reason = inspect(named_root(option)), f"asked for: --cuda {option}"
    else:
        if isinstance(option, Version) and not _same_release(provided_version(), option):
            raise MissingToolError(
                f"For a target nvcc {provided_version()} is provided, and {option} was asked for.",
                hint="Name the folder of a toolkit of that version: --cuda DIR",
            )
        nvcc, reason = inspect(provide(host.platform, folder, on_file)), "provided from PyPI"
    if problem := _unfit(nvcc, host, wanted, driver=None):
        raise MissingToolError(f"nvcc {nvcc.version} in {nvcc.root} cannot be used: it {problem}.")
    compiler = HostCompiler("zig", str(zig.preprocessor), Version(zig.version))
    named = isinstance(option, Path)
    return Toolchain(nvcc, compiler, reason, zig.environment(work), named, zig)


def foresee_toolchain(
    option: CudaChoice, host: HostRecord, wanted: Sequence[Architecture], *, driver: Version | None
) -> CudaToolkit | None:
    """The toolkit of a host record that :func:`choose_toolchain` would take; ``None`` for the one from PyPI.

    It looks at the record alone, and raises what :func:`choose_toolchain` raises for ``auto`` or a version.
    """
    version = option if isinstance(option, Version) else None
    looked = ((t, _recorded(t)) for t in _of_release(host.toolkits, version))
    nvcc, _, rejected = _first_fit(looked, host, wanted, driver)
    if nvcc is not None:
        compiler_for(nvcc, host)
        return next(t for t in host.toolkits if Path(t.root) == nvcc.root)
    _require_providable(version, host, driver, rejected)
    provided = _recorded(CudaToolkit("", provided_version(), "PyPI"))
    _require_fit(provided, host, wanted, driver)
    compiler_for(provided, host)
    return None


def _of_release(toolkits: Sequence[CudaToolkit], version: Version | None) -> list[CudaToolkit]:
    return [t for t in toolkits if version is None or _same_release(t.version, version)]


def _inspected(toolkit: CudaToolkit) -> tuple[CudaToolkit, Nvcc | str]:
    try:
        return toolkit, inspect(Path(toolkit.root))
    except MissingToolError as error:
        return toolkit, error.message


def _recorded(toolkit: CudaToolkit) -> Nvcc:
    """The nvcc of a record; what the record does not have comes from the table of CUDA releases."""
    codes = toolkit.codes if toolkit.codes is not None else codes_of(toolkit.version)
    gcc, clang = host_compiler_limits(toolkit.version)
    first, limit = msvc_limits(toolkit.version)
    return Nvcc(
        root=Path(toolkit.root),
        version=toolkit.version,
        codes=codes,
        options=frozenset(),
        newest_gcc=gcc if toolkit.newest_gcc is None else toolkit.newest_gcc,
        newest_clang=clang if toolkit.newest_clang is None else toolkit.newest_clang,
        msvc_limit=limit if toolkit.msvc_limit is None else toolkit.msvc_limit,
        oldest_msvc=first,
        missing=toolkit.missing or (),
    )


def _first_fit(
    looked: Iterable[tuple[CudaToolkit, Nvcc | str]],
    host: HostRecord,
    wanted: Sequence[Architecture],
    driver: Version | None,
) -> tuple[Nvcc | None, str, list[str]]:
    """The first nvcc that can do the work, what it was found by, and why each before it cannot."""
    rejected = []
    for toolkit, nvcc in looked:
        named = f"nvcc {toolkit.version} in {toolkit.root}"
        if isinstance(nvcc, str):
            rejected.append(f"{named}: {nvcc}")
        elif problem := _unfit(nvcc, host, wanted, driver=driver):
            rejected.append(f"{named} {problem}")
        else:
            return nvcc, toolkit.found_by, rejected
    return None, "", rejected


def _require_providable(
    version: Version | None, host: HostRecord, driver: Version | None, rejected: Sequence[str]
) -> None:
    ours = provided_version()
    if version is not None and not _same_release(ours, version):
        found = "; ".join(rejected) or f"this machine has {_list(host.toolkits)}"
        raise MissingToolError(
            f"There is no CUDA {version} here that can be used: {found}.",
            hint=f"Name a toolkit's folder (--cuda DIR), or let flashdepot provide nvcc {ours}: --cuda auto",
        )
    # The table of drivers has no other system, and PyPI no nvcc for it: the sentence about PyPI says so.
    known = host.platform.system in {"linux", "windows"}
    if (
        known
        and driver is not None
        and driver < (floor := driver_floor(ours.major, host.platform.system, compressed=True))
    ):
        found = "".join(f" {reason}." for reason in rejected)
        raise IncompatibleError(
            f"This machine's NVIDIA driver is {driver}; what nvcc {ours} builds needs {floor}.{found}",
            hint="Update the driver, or install a CUDA 12 toolkit (driver 525 serves it) and name it: --cuda DIR",
        )
    if not provides(host.platform):
        raise MissingToolError(
            f"No usable nvcc was found, and PyPI has none for {host.platform}.",
            hint="Install a CUDA toolkit, 12.0 or newer, and name its folder: --cuda DIR",
        )
    _require_compiler(host)


def _require_fit(provided: Nvcc, host: HostRecord, wanted: Sequence[Architecture], driver: Version | None) -> None:
    if problem := _unfit(provided, host, wanted, driver=driver):
        raise MissingToolError(f"The provided nvcc {provided_version()} cannot be used: it {problem}.")


def _unfit(nvcc: Nvcc, host: HostRecord, wanted: Sequence[Architecture], *, driver: Version | None) -> str:
    """Why this nvcc cannot do the work, or an empty string. A missing host compiler is no fault of nvcc's."""
    if nvcc.version < OLDEST_CUDA:
        return f"is older than CUDA {OLDEST_CUDA}"
    if problem := nvcc.problem():
        return problem
    if host.platform.system not in {"linux", "windows"}:
        return f"is on {host.platform}, where NVIDIA GPUs have no driver"
    try:
        choose_sass(wanted, nvcc.version, nvcc.codes)
        floor = driver_floor(nvcc.version.major, host.platform.system, compressed=False)
    except (MissingToolError, IncompatibleError) as error:
        return f"does not serve: {error.message} {error.hint}".rstrip(" .")
    if driver is not None and driver < floor:
        return f"builds what needs driver {floor}, and this machine's is {driver}"
    return ""


def compiler_for(nvcc: Nvcc, host: HostRecord) -> HostCompiler:
    """The first compiler of a host that an nvcc accepts; :raises MissingToolError: when there is none."""
    _require_compiler(host)
    for compiler in host.compilers:
        if nvcc.accepts(compiler):
            return compiler
    found = ", ".join(f"{c.kind} {c.version} ({c.path})" for c in host.compilers)
    raise MissingToolError(
        f"nvcc {nvcc.version} accepts {_accepted(nvcc, host)}; this machine has {found}.",
        hint=f"Install {_fitting(nvcc, host)}; it is then found by itself, "
        f"or name it: NVCC_CCBIN=PATH{_newer_nvcc(nvcc, host)}",
    )


def _accepted(nvcc: Nvcc, host: HostRecord) -> str:
    if host.platform.system == "windows" and nvcc.msvc_limit is not None:
        floor = f" from {_cl_version(nvcc.oldest_msvc)} on," if nvcc.oldest_msvc else ""
        return f"MSVC{floor} older than {_cl_version(nvcc.msvc_limit)}"
    return f"GCC up to {nvcc.newest_gcc} and Clang up to {nvcc.newest_clang}"


def _cl_version(msc_ver: int) -> str:
    return f"{msc_ver // 100}.{msc_ver % 100}"


def _fitting(nvcc: Nvcc, host: HostRecord) -> str:
    """A host compiler that this nvcc accepts, and how to get it."""
    if host.platform.system == "windows" and nvcc.msvc_limit is not None:
        return f"another one beside it ({installable_msvc(nvcc.msvc_limit)})"
    return f"an older one beside it ({_install_hint(host, nvcc.newest_gcc)})"


def _newer_nvcc(nvcc: Nvcc, host: HostRecord) -> str:
    """The provided nvcc as a way out, where it accepts a compiler that an older one does not."""
    ours = _recorded(CudaToolkit("", provided_version(), "PyPI"))
    helps = nvcc.version < ours.version and any(ours.accepts(c) for c in host.compilers)
    return (
        f"; or take a newer nvcc: --cuda {ours.version.text.rsplit('.', 1)[0]}"
        if helps and provides(host.platform)
        else ""
    )


def _require_compiler(host: HostRecord) -> None:
    if not host.compilers:
        raise MissingToolError(
            "No C++ compiler was found, and nvcc cannot compile without one.",
            hint=f"Install one: {_install_hint(host, None)}. If it is in an unusual place: NVCC_CCBIN=PATH",
        )


_INSTALL = (
    (("Debian", "Ubuntu", "Mint"), "apt-get install g++", "apt-get install g++-{n}"),
    (("Fedora", "Red Hat", "Rocky", "Alma", "CentOS", "Oracle"), "dnf install gcc-c++", "dnf install gcc-toolset-{n}"),
    (("SUSE",), "zypper install gcc-c++", "zypper install gcc{n}-c++"),
    (("Arch", "Manjaro"), "pacman -S gcc", "pacman -S gcc{n}"),
    (("Alpine",), "apk add g++", "apk add g++"),
    (("Windows",), BUILD_TOOLS, BUILD_TOOLS),
)


def _install_hint(host: HostRecord, newest: int | None) -> str:
    for names, plain, numbered in _INSTALL:
        if any(name in host.os_name for name in names):
            return plain if newest is None else numbered.format(n=newest)
    return "g++ from your distribution" if newest is None else f"GCC {newest} from your distribution"


def _same_release(found: Version, asked: Version) -> bool:
    length = len(asked.text.split("."))
    return found.text.split(".")[:length] == asked.text.split(".")


def _list(toolkits: Sequence[CudaToolkit]) -> str:
    return ", ".join(str(t.version) for t in toolkits) or "no CUDA toolkit"
