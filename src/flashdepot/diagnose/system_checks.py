"""Operating system and C library, memory, cores and disks."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from flashdepot.build.schedule import GB, Capacity, foresee
from flashdepot.diagnose.case import Case, Intention, blocker, misfit, note, warning
from flashdepot.host.surroundings import usable_cores
from flashdepot.kernels import default_family, family_of
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.limits import counted, duration
from flashdepot.model.selection import ALL_FEATURES, PROFILES, Selection
from flashdepot.model.target import Version
from flashdepot.resolve.times import making_seconds, usual_jobs

_MACHINES = ("x86_64", "aarch64")

_TORCH_GLIBC = Version("2.28")
"""PyTorch's wheels are tagged manylinux_2_28 since 2.6."""

_OFFICIAL_GLIBC = Version("2.32")
"""flash-attention's own wheels ask for GLIBC_2.32 from 2.8 on (its issue 1762)."""

_GLIBC_IMAGE = "Use a system with the GNU C library, for example: docker run --gpus all -it debian:12"


def platform(case: Case) -> Iterator[Diagnosis]:
    """Systems that flashdepot makes nothing for."""
    name = case.record.platform
    if name.system == "linux" and name.machine in _MACHINES:
        return
    if name.system == "windows" and name.machine == "x86_64":
        seen, fix = "This is Windows.", "Should it fail: flashdepot explain, or the Windows Subsystem for Linux"
        why = "flashdepot was tested for Windows under wine only, never on Windows itself; docs/windows.md says what."
        yield warning("platform-untested", seen, why, fix)
        return
    if name.system == "windows":
        seen, fix = f"This is Windows ({name}).", "Use the Windows Subsystem for Linux: wsl --install"
        why = "On Windows, NVIDIA's compiler exists only for x86_64."
    elif name.system == "darwin":
        seen, fix = f"This is macOS ({name}).", "Run the same command on a Linux machine with an NVIDIA GPU."
        why = "NVIDIA GPUs have no driver and no CUDA there."
    else:
        seen, fix = f"This is {name}.", "Use a machine with an x86_64 or aarch64 processor and Linux."
        why = "NVIDIA's compiler and driver are made for Linux on x86_64 and aarch64."
    yield misfit("platform-unsupported", seen, why, fix)


def libc(case: Case) -> Iterator[Diagnosis]:
    """musl, and a GNU C library that is older than what published files were built on."""
    record = case.record
    if record.platform.system != "linux":
        return
    if record.libc_name == "musl":
        why = "NVIDIA's driver libraries and compiler, PyTorch's wheels and the libraries made here need the GNU one."
        yield misfit("glibc-too-old", f"{record.os_name} has the musl C library.", why, _GLIBC_IMAGE)
        return
    if record.libc is None or case.intention is not Intention.INSTALL:
        return
    torch_is_here = case.python is not None and case.python.torch is not None
    if record.libc < _TORCH_GLIBC and not torch_is_here:
        why = f"PyTorch's wheels need {_TORCH_GLIBC} since 2.6; pip then takes an old one, or none."
        fix = "Use a newer system (Debian 11, Ubuntu 20.04, RHEL 8 have enough), or: pip install 'torch<2.6'"
        yield warning("glibc-too-old", f"The GNU C library is {record.libc}.", why, fix)
    elif record.libc < _OFFICIAL_GLIBC:
        why = f"flash-attention's own wheels need {_OFFICIAL_GLIBC}: they install, and fail when imported."
        fix = "Build here instead of taking those: flashdepot get"
        yield note("glibc-too-old", f"The GNU C library is {record.libc}.", why, fix)


def conda_libstdcxx(case: Case) -> Iterator[Diagnosis]:
    """conda's own libstdc++, which is loaded before the system's."""
    if case.python is not None and case.python.conda:
        why = (
            "Its libstdc++ is loaded before the system's: a module that the system's newer g++ built may miss "
            "GLIBCXX symbols there. Libraries made by flashdepot have theirs inside."
        )
        fix = "Should an import name GLIBCXX: conda install -c conda-forge 'libstdcxx-ng>=13'"
        yield note("glibcxx-too-old", f"{case.python.prefix} is a conda environment.", why, fix)


_DISK_NEEDED = GB
"""A compiler writes up to 1 GB of temporary files; objects and library of one architecture take less."""

_DISK_COMFORTABLE = 5 * GB
"""Source (0.1 GB), the provided nvcc (0.5 GB), objects and libraries of a few architectures."""

_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})

_SLOW = 3600


def memory(case: Case) -> Iterator[Diagnosis]:
    """Less memory than compilers take."""
    record = case.record
    if record.memory <= 0:
        return
    units = default_family().full() if case.units is None else case.units
    peaks = [family_of(unit.family).estimate(unit, ALL_FEATURES, 1).peak for unit in units] or [0]
    limit = record.memory_facts.limit if record.memory_facts else None
    swap = record.memory_facts.swap if record.memory_facts and limit is None else 0
    least, most = min(peaks), max(peaks)
    seen = f"{record.memory / GB:.1f} GB of memory can be used"
    seen += f" (the control group allows {limit / GB:.1f} GB)" if limit is not None else ""
    seen += f", and {swap / GB:.1f} GB of swap." if swap else "."
    fix = _more_memory(case)
    if record.memory + swap < least:
        why = f"Every unit takes {least / GB:.1f} GB or more while it is compiled: the kernel kills the compiler."
        yield blocker("oom-killed", seen, why, fix)
    elif record.memory < most:
        why = f"Single units take up to {most / GB:.1f} GB while they are compiled: the kernel may kill the compiler."
        yield warning("oom-killed", seen, why, f"{fix} Or compile less: --profile inference")


def _more_memory(case: Case) -> str:
    record = case.record
    if record.wsl:
        return "Give WSL more: memory=16GB under [wsl2] in %UserProfile%\\.wslconfig, then: wsl --shutdown."
    if record.container == "kubernetes":
        return "Raise the pod's limit: resources: {limits: {memory: 16Gi}}."
    if record.container in {"docker", "podman"}:
        return f"Raise the container's limit: {record.container} run --memory 16g ..."
    return "Close other programs, or add swap: sudo fallocate -l 16G /swap && sudo mkswap /swap && sudo swapon /swap."


def time_needed(case: Case) -> Iterator[Diagnosis]:
    """A full build that takes hours."""
    cores, memory = case.record.cores, case.record.memory
    if cores <= 0 or case.request.selected != PROFILES["full"]:
        return
    full = Selection(frozenset(default_family().full()), ALL_FEATURES)
    outlook = foresee(
        usual_jobs(full, 1),
        (),
        Capacity.next_to_others(cores, memory) if memory > 0 else Capacity(cores, sys.maxsize),
    )
    # Which cores share their work is known of this machine only.
    seconds = making_seconds(outlook, len(full.units), is_here=cores == usable_cores())
    if seconds > _SLOW:
        seen = f"{cores} cores can be used."
        compilers = counted(outlook.at_once, "compiler")
        why = f"A full build of one architecture takes about {duration(seconds)} with {compilers} at a time, once."
        yield note("slow-build", seen, why, "Choose less: --profile inference, or --head-dims 64,128 --dtypes bf16")


def build_disks(case: Case) -> Iterator[Diagnosis]:
    """Little space where the depot is and where compilers write."""
    depot, temp = case.record.disk("depot"), case.record.disk("temp")
    for disk, fix in (
        (depot, "Free space there ('flashdepot depot gc' shows what it would free), or use another: --depot DIR"),
        (temp, f"Free space there, or use another folder: {_temporary(case)}"),
    ):
        if disk is None or disk.free >= _DISK_COMFORTABLE:
            continue
        if disk is temp and depot is not None and disk.device == depot.device:
            continue  # said already, of the same disk
        seen = f"{disk.free / GB:.1f} GB are free on the disk of {disk.path} ({disk.use})."
        if disk.free < _DISK_NEEDED:
            why = "A single compiler writes up to 1 GB of temporary files: the build would fill the disk and stop."
            yield blocker("disk-full", seen, why, fix)
        else:
            why = "Source, compiler, objects and library take about 1 to 5 GB together."
            yield warning("disk-full", seen, why, fix)
    if temp is not None and temp.filesystem in _MEMORY_FILE_SYSTEMS:
        seen = f"The temporary folder {temp.path} is in memory ({temp.filesystem})."
        why = "What compilers write there, up to 1 GB each, is taken from the memory that they need."
        yield warning("disk-full", seen, why, f"Use a folder on a disk: {_temporary(case)}")


def install_disks(case: Case) -> Iterator[Diagnosis]:
    """Little space for a wheel, and file systems that a file cannot be renamed across."""
    cache, temp = case.record.disk("cache"), case.record.disk("temp")
    apart = temp if cache is None or temp is None or temp.device != cache.device else None
    for disk, fix in ((cache, "export XDG_CACHE_HOME=DIR"), (apart, _temporary(case))):
        if disk is not None and disk.free < _DISK_NEEDED:
            seen = f"{disk.free / GB:.1f} GB are free on the disk of {disk.path} ({disk.use})."
            why = "A wheel of FlashAttention has up to 0.3 GB, and is there packed and unpacked."
            yield warning("disk-full", seen, why, f"Free space there, or use another folder: {fix}")
    if cache is not None and temp is not None and cache.device != temp.device:
        seen = f"{temp.path} and {cache.path} are on different file systems."
        why = (
            "upstream's setup.py renames the wheel that it fetched from one to the other: 'Invalid cross-device link'."
        )
        fix = f"If pip says so, first: {_temporary(case, str(cache.path))} (flashdepot copies, and is not affected)"
        yield note("cross-device-link", seen, why, fix)


def _temporary(case: Case, folder: str = "DIR") -> str:
    """The command that moves temporary files."""
    return f"set TMP={folder}" if case.record.platform.system == "windows" else f"export TMPDIR={folder}"
