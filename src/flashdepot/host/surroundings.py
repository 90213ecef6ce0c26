"""What a machine is inside of, and what it has: container, WSL, C and C++ library, programs, settings, disks."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from flashdepot.binary.elf import ElfFile, version_floor
from flashdepot.binary.window import open_window
from flashdepot.errors import IntegrityError
from flashdepot.files.disk import text_of
from flashdepot.files.trust import user_cache
from flashdepot.model.host import Disk, MemoryFacts
from flashdepot.model.target import Version

_ROOT = Path("/")

VARIABLES = (
    "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_ROOT",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_COMPUTE_CAP", "CONDA_OVERRIDE_CUDA", "CUDARC_CUDA_VERSION",
    "CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "NVCC", "NVCC_CCBIN", "NVCC_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
    "CFLAGS", "CXXFLAGS", "LDFLAGS", "RUSTFLAGS", "CMAKE_GENERATOR", "CMAKE_PREFIX_PATH", "CMAKE_TOOLCHAIN_FILE",
    "TORCH_CUDA_ARCH_LIST", "FLASH_ATTN_CUDA_ARCHS", "MAX_JOBS", "LIBTORCH", "LIBCLANG_PATH", "BNB_CUDA_VERSION",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "PYTHONPATH", "PYTHONHOME", "PIP_ONLY_BINARY", "PIP_NO_BINARY", "PIP_NO_INDEX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER",
    "UV_EXCLUDE_NEWER", "UV_NO_BUILD", "UV_OFFLINE", "CARGO_NET_OFFLINE", "HF_HUB_OFFLINE",
    "PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
    "TMPDIR", "DISTUTILS_USE_SDK",
)  # fmt: skip
"""The environment variables of a record: those that steer compilers, builds and GPUs, none that could be secret."""

PROGRAMS = (
    "cmake", "ninja", "pkg-config", "cargo", "git", "git-lfs", "nvidia-smi", "uv", "pip", "python", "python3", "conda",
    "apt", "dnf", "sudo",
)  # fmt: skip
"""The programs that a record says the place of."""


def container(root: Path = _ROOT, environment: Mapping[str, str] = os.environ) -> str:
    """The kind of container that this process is in; empty for none that shows."""
    if "KUBERNETES_SERVICE_HOST" in environment or (root / "var/run/secrets/kubernetes.io").is_dir():
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    named = re.search(r"\bcontainer=([\w-]+)", text_of(root / "proc/1/environ").replace("\0", "\n"))
    if (word := environment.get("container") or (named[1] if named else "")) and word != "oci":
        return word
    groups = text_of(root / "proc/1/cgroup")
    for mark, kind in (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("/lxc", "lxc")):
        if mark in groups:
            return kind
    return ""


def is_wsl(root: Path = _ROOT) -> bool:
    """Whether the kernel is that of the Windows Subsystem for Linux."""
    return "microsoft" in text_of(root / "proc/version").lower()


def libc_name(root: Path = _ROOT) -> str:
    """``glibc`` or ``musl``; empty on another system."""
    if platform.system() != "Linux":
        return ""
    if next((root / "lib").glob("ld-musl-*.so.1"), None) and not platform.libc_ver()[0]:
        return "musl"
    return "glibc"


def long_paths() -> bool | None:
    """Whether Windows takes paths of more than 260 characters; ``None`` on another system."""
    if sys.platform != "win32":
        return None
    import winreg  # noqa: PLC0415  (only Windows has it)

    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SYSTEM\CurrentControlSet\Control\FileSystem") as key:
            return bool(winreg.QueryValueEx(key, "LongPathsEnabled")[0])
    except OSError:
        return False


def variables(environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Those of :data:`VARIABLES` that are set."""
    return {name: environment[name] for name in VARIABLES if name in environment}


COMPILERS = ("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "NVCC", "NVCC_CCBIN")
PLACES = (
    "TMPDIR", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_ROOT", "LIBTORCH", "LIBCLANG_PATH",
    "CMAKE_TOOLCHAIN_FILE", "PYTHONHOME", "PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
)  # fmt: skip
"""Variables that name a folder or a file."""


def dangling(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Variables that name a program (its first word), a folder or a file, and nothing is there; ``TMPDIR`` must be a folder."""
    named = [(name, environment[name]) for name in PLACES if environment.get(name)]
    gone = [name for name, place in named if not (Path(place).is_dir() if name == "TMPDIR" else Path(place).exists())]
    programs_ = {name: environment[name] for name in COMPILERS if environment.get(name, "").strip()}
    # NVCC_CCBIN may be the folder of a compiler (nvcc manual, --compiler-bindir).
    return (*gone, *(n for n, p in programs_.items() if not shutil.which(p.split()[0]) and not Path(p).exists()))


def programs() -> Mapping[str, str]:
    """Where each of :data:`PROGRAMS` is that is on ``PATH``."""
    return {name: place for name in PROGRAMS if (place := shutil.which(name))}


_MOUNTS = Path("/proc/self/mounts")


def probe_disks(depot: Path | None) -> tuple[Disk, ...]:
    """The disks of the temporary folder, the user's cache and the depot (the cache's own when none is named).

    The temporary folder is left out where there is none that can be used.
    """
    ours = user_cache()
    places = {"cache": ours.parent, "depot": depot or ours}
    with contextlib.suppress(FileNotFoundError):  # no folder may be written, or no file have a byte
        import tempfile  # noqa: PLC0415  (few are asked for their space)

        places = {"temp": Path(tempfile.gettempdir()), **places}
    types = {row[1]: row[2] for line in text_of(_MOUNTS).splitlines() if len(row := line.split()) > 2}  # noqa: PLR2004
    if not types:
        import psutil  # noqa: PLC0415  (slow to import, and Linux says it in a file)

        types = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    return tuple(disk for use, place in places.items() if (disk := look(use, place, types)))


def look(use: str, place: Path, types: Mapping[str, str]) -> Disk | None:
    """The disk of one folder, or of the nearest above it that exists; ``None`` when it cannot be seen."""
    there = next((p for p in (place, *place.parents) if p.exists()), None)
    if there is None:
        return None
    try:
        real = Path(os.path.realpath(there))
        kind = next((types[str(p)] for p in (real, *real.parents) if str(p) in types), "")
        return Disk(use, str(place), shutil.disk_usage(there).free, kind, str(there.stat().st_dev))
    except OSError:
        return None


CXX_LIBRARY = "libstdc++.so.6"
_USUAL = ("/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/lib", "/usr/lib",
    "/usr/local/cuda/lib64")  # fmt: skip
_LISTED = Path("/etc/ld.so.conf.d")


def system_folders(listed: Path = _LISTED) -> tuple[Path, ...]:
    """The folders that the system's files name, then the usual ones."""
    folders = []
    for listing in sorted(listed.glob("*.conf")) if listed.is_dir() else ():
        lines = listing.read_text(errors="replace").splitlines()
        folders += [Path(line.strip()) for line in lines if line.startswith("/")]
    return (*folders, *(Path(p) for p in _USUAL))


def cxx_versions(library: Path) -> tuple[Version | None, Version | None]:
    """The newest ``GLIBCXX_*`` and ``CXXABI_*`` of a libstdc++; ``None`` where it cannot be read."""
    try:
        with open_window(library) as window:
            offered = ElfFile(window).version_definitions
    except (IntegrityError, OSError):
        return None, None
    return version_floor(offered, "GLIBCXX"), version_floor(offered, "CXXABI")


def system_cxx_versions() -> tuple[Version | None, Version | None]:
    """Those of the system's own libstdc++."""
    found = (folder / CXX_LIBRARY for folder in system_folders())
    path = next((path for path in found if path.is_file()), None)
    return cxx_versions(path) if path is not None else (None, None)


_CGROUP = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")


def usable_memory(cgroup: Path = _CGROUP, membership: Path = _SELF) -> int:
    """Bytes that new processes can take: what is available now, or what the control group leaves, if that is less."""
    return min([_available(), *(max(0, limit - used) for limit, used in _group_limits(cgroup, membership))])


def _available() -> int:
    if kibibytes := _statistic(_MEMORY, "MemAvailable:"):
        return kibibytes << 10
    import psutil  # noqa: PLC0415  (slow to import, and Linux says it in a file)

    return int(psutil.virtual_memory().available)


def memory_facts(cgroup: Path = _CGROUP, membership: Path = _SELF) -> MemoryFacts:
    """All memory, what is available, the lowest limit of the control groups, and free swap, in bytes."""
    import psutil  # noqa: PLC0415  (slow to import, and only builds need it)

    memory = psutil.virtual_memory()
    limits = [limit for limit, _ in _group_limits(cgroup, membership) if limit < memory.total]
    try:
        swap = int(psutil.swap_memory().free)
    except (RuntimeError, OSError):  # Windows counts it by performance counters, which may be disabled
        swap = 0
    return MemoryFacts(int(memory.total), int(memory.available), min(limits, default=None), swap)


def usable_cores(cgroup: Path = _CGROUP, membership: Path = _SELF) -> int:
    """Cores this process may run on: its CPU affinity, or its control group's quota, if that is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = []
    for folder in _group_folders(cgroup, membership, "cpu"):
        words = text_of(folder / "cpu.max").split()
        if not words:
            words = [text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal():  # noqa: PLR2004
            quotas.append(max(1, int(words[0]) // int(words[1])))
    return min([affinity, *quotas])


def busy_load() -> float:
    """The programs that wanted a core in the last minute, if they took half of the cores or more; else 0, as on Windows."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load if load >= usable_cores() / 2 else 0.0


_OF_A_SECOND_THREAD = 0.25
"""What the second of two compilers on one core adds to the work of the first: 16 on 8 cores took 1.5 times the time that
the cores would have taken by themselves."""


def crowding(jobs: int) -> float:
    """How many times longer so many programs at once take than one, because cores have two threads; 1 where each has its own."""
    siblings = [text_of(file) for file in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/core_cpus_list")]
    threads, cores = len(siblings), len(set(siblings))
    if not siblings:
        import psutil  # noqa: PLC0415  (slow to import, and Linux says it in files)

        threads = psutil.cpu_count() or 1
        cores = psutil.cpu_count(logical=False) or threads
    own: float = max(1.0, usable_cores() * cores / threads)
    return max(1.0, jobs / (own + _OF_A_SECOND_THREAD * (jobs - own)))


def _group_limits(cgroup: Path, membership: Path) -> Iterator[tuple[int, int]]:
    """The limit of each group that has one, and the bytes of it that are used."""
    for folder in _group_folders(cgroup, membership, "memory"):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = (text_of(folder / name).strip() for name in (limit_name, used_name))
            if limit.isdecimal() and used.isdecimal():
                # Page cache counts as used, yet the kernel gives it back under pressure.
                yield int(limit), int(used) - _statistic(folder / "memory.stat", cache_name)


def _group_folders(cgroup: Path, membership: Path, controller: str) -> list[Path]:
    """The folders of this process's group and of those above it: a limit anywhere on the way applies."""
    folders = []
    for line in text_of(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroup / controller if controllers else cgroup
        place = root / path.lstrip("/")
        while True:
            if place.is_dir():
                folders.append(place)
            if place in {root, place.parent}:
                break
            place = place.parent
    return folders


def _statistic(path: Path, name: str) -> int:
    """The number behind a name in a file with one of each a line; 0 where there is none."""
    for line in text_of(path).splitlines():
        key, value, *_ = (*line.split(), "", "")
        if key == name and value.isdecimal():
            return int(value)
    return 0
