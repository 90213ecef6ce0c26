"""What a machine is inside of: a container, WSL; and which C library, programs and settings it has."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path("/")

VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_COMPUTE_CAP",
    "NVCC_CCBIN",
    "NVCC_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CXX",
    "TORCH_CUDA_ARCH_LIST",
    "FLASH_ATTN_CUDA_ARCHS",
    "MAX_JOBS",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "VSCMD_ARG_TGT_ARCH",
    "DISTUTILS_USE_SDK",
)
"""The environment variables of a record: those that steer compilers, builds and GPUs, none that could be secret."""

PROGRAMS = ("cmake", "ninja", "pkg-config", "cargo", "git", "git-lfs", "nvidia-smi", "uv")
"""The programs that a record says the place of."""


def container(root: Path = _ROOT, environment: Mapping[str, str] = os.environ) -> str:
    """The kind of container that this process is in; empty for none that shows."""
    if "KUBERNETES_SERVICE_HOST" in environment or (root / "var/run/secrets/kubernetes.io").is_dir():
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    named = re.search(r"\bcontainer=([\w-]+)", _read(root / "proc/1/environ").replace("\0", "\n"))
    if (word := environment.get("container") or (named[1] if named else "")) and word != "oci":
        return word
    groups = _read(root / "proc/1/cgroup")
    for mark, kind in (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("/lxc", "lxc")):
        if mark in groups:
            return kind
    return ""


def is_wsl(root: Path = _ROOT) -> bool:
    """Whether the kernel is that of the Windows Subsystem for Linux."""
    return "microsoft" in _read(root / "proc/version").lower()


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
    import winreg  # noqa: PLC0415  (there on Windows alone)

    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SYSTEM\CurrentControlSet\Control\FileSystem") as key:
            return bool(winreg.QueryValueEx(key, "LongPathsEnabled")[0])
    except OSError:
        return False


def variables(environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Those of :data:`VARIABLES` that are set."""
    return {name: environment[name] for name in VARIABLES if name in environment}


def dangling(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Variables that name a program (its first word) or a folder, and nothing is there."""
    folders = [name for name in ("TMPDIR",) if (place := environment.get(name)) and not Path(place).is_dir()]
    named = [name for name in ("CXX", "NVCC_CCBIN") if environment.get(name, "").strip()]
    programs_ = {name: environment[name].split()[0] for name in named}
    # NVCC_CCBIN may be the folder of a compiler (nvcc manual, --compiler-bindir).
    return (*folders, *(n for n, p in programs_.items() if not shutil.which(p) and not Path(environment[n]).exists()))


def programs() -> Mapping[str, str]:
    """Where each of :data:`PROGRAMS` is that is on ``PATH``."""
    return {name: place for name in PROGRAMS if (place := shutil.which(name))}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
