"""Operating system and C library."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.doctor.case import Case
from flashdepot.doctor.finding import Finding, Intention, blocker, note, warning
from flashdepot.model.target import Version

_MACHINES = ("x86_64", "aarch64")

_TORCH_GLIBC = Version("2.28")
"""PyTorch's wheels are tagged manylinux_2_28 since 2.6."""

_OFFICIAL_GLIBC = Version("2.32")
"""flash-attention's own wheels ask for GLIBC_2.32 from 2.8 on (its issue 1762)."""

_GLIBC_IMAGE = "Use a system with the GNU C library, for example: docker run --gpus all -it debian:12"


def platform(case: Case) -> Iterator[Finding]:
    """Systems that nothing of ours is made for."""
    name = case.record.platform
    if name.system == "linux" and name.machine in _MACHINES:
        return
    if name.system == "windows" and name.machine == "x86_64":
        seen, mend = "This is Windows.", "Should it fail: flashdepot explain, or the Windows Subsystem for Linux"
        why = "What flashdepot does there was tested piece by piece and never as a whole; docs/windows.md says what."
        yield warning("platform-untested", seen, why, mend)
        return
    if name.system == "windows":
        seen, mend = f"This is Windows ({name}).", "Use the Windows Subsystem for Linux: wsl --install"
        why = "On Windows, NVIDIA's compiler exists only for x86_64."
    elif name.system == "darwin":
        seen, mend = f"This is macOS ({name}).", "Run the same command on a Linux machine with an NVIDIA GPU."
        why = "NVIDIA GPUs have no driver and no CUDA there."
    else:
        seen, mend = f"This is {name}.", "Use a machine with an x86_64 or aarch64 processor and Linux."
        why = "NVIDIA's compiler and driver are made for Linux on x86_64 and aarch64."
    yield blocker("platform-unsupported", seen, why, mend, incompatible=True)


def libc(case: Case) -> Iterator[Finding]:
    """musl, and a GNU C library that is older than what published files were built on."""
    record = case.record
    if record.platform.system != "linux":
        return
    if record.libc_name == "musl":
        why = "NVIDIA's driver libraries and compiler, PyTorch's wheels and the libraries made here need the GNU one."
        yield blocker(
            "glibc-too-old", f"{record.os_name} has the musl C library.", why, _GLIBC_IMAGE, incompatible=True
        )
        return
    if record.libc is None or case.intention is not Intention.INSTALL:
        return
    torch_is_here = case.python is not None and case.python.torch is not None
    if record.libc < _TORCH_GLIBC and not torch_is_here:
        why = f"PyTorch's wheels need {_TORCH_GLIBC} since 2.6; pip then takes an old one, or none."
        mend = "Use a newer system (Debian 11, Ubuntu 20.04, RHEL 8 have enough), or: pip install 'torch<2.6'"
        yield warning("glibc-too-old", f"The GNU C library is {record.libc}.", why, mend)
    elif record.libc < _OFFICIAL_GLIBC:
        why = f"flash-attention's own wheels need {_OFFICIAL_GLIBC}: they install, and fail when imported."
        mend = "Build here instead of taking those: flashdepot get"
        yield note("glibc-too-old", f"The GNU C library is {record.libc}.", why, mend)


def conda_libstdcxx(case: Case) -> Iterator[Finding]:
    """conda's own libstdc++, which is loaded before the system's."""
    if case.python is not None and case.python.conda:
        why = (
            "Its libstdc++ is loaded before the system's: a module that the system's newer g++ built may miss "
            "GLIBCXX symbols there. Libraries made by flashdepot have theirs inside."
        )
        mend = "Should an import name GLIBCXX: conda install -c conda-forge 'libstdcxx-ng>=13'"
        yield note("glibcxx-too-old", f"{case.python.prefix} is a conda environment.", why, mend)
