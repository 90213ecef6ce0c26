"""The data of ``cuda_facts.toml``: architectures by CUDA release, and driver floors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.errors import IncompatibleError
from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Version
from flashdepot.system.toml import read_toml


@dataclass(frozen=True)
class KnownArchitecture:
    """A compute capability, examples of its GPUs, and the CUDA releases (first and last) whose nvcc targets it."""

    architecture: Architecture
    gpus: str
    first_cuda: Version
    last_cuda: Version | None


@cache
def _data() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("cuda_facts.toml"))


def known_architectures() -> tuple[KnownArchitecture, ...]:
    """Every architecture of the table, oldest first."""
    return tuple(
        KnownArchitecture(
            Architecture.parse(row["capability"]),
            row["gpus"],
            Version.parse(row["first_cuda"]),
            Version.parse(row["last_cuda"]) if "last_cuda" in row else None,
        )
        for row in _data()["architecture"]
    )


def codes_of(release: Version) -> tuple[Architecture, ...]:
    """The architectures of the table that a CUDA release's nvcc targets: what to expect where nvcc was not asked."""
    return tuple(
        known.architecture
        for known in known_architectures()
        if known.first_cuda <= release and (known.last_cuda is None or release.major <= known.last_cuda.major)
    )


def universal_architectures() -> tuple[Architecture, ...]:
    """What ``--arch universal`` stands for."""
    return tuple(Architecture.parse(text) for text in _data()["universal"])


def fallback_architecture() -> Architecture:
    """What ``--arch native`` stands for on a machine without a GPU."""
    return Architecture.parse(_data()["fallback"])


def host_compiler_limits(release: Version) -> tuple[int | None, int | None]:
    """The newest GCC and Clang (major versions) that a CUDA release accepts; ``None`` for a release before the table."""
    rows = [row for row in _data()["host_compiler"] if Version.parse(row["cuda"]) <= release]
    return (rows[-1]["gcc"], rows[-1]["clang"]) if rows else (None, None)


BUILD_TOOLS = (
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)
"""The command that installs Microsoft's compiler, its libraries and a Windows SDK without the rest."""


def msvc_limits(release: Version) -> tuple[int | None, int | None]:
    """The oldest ``_MSC_VER`` that a CUDA release accepts and the first that is too new; ``None`` before the table."""
    rows = [row for row in _data()["msvc"] if Version.parse(row["cuda"]) <= release]
    return (rows[-1]["first"], rows[-1]["limit"]) if rows else (None, None)


def installable_msvc(limit: int) -> str:
    """The newest toolset below a limit of ``_MSC_VER``, by its name in the Visual Studio Installer."""
    fitting = [row for row in _data()["msvc_toolset"] if row["msc_ver"] < limit]
    return str(fitting[-1]["name"]) if fitting else BUILD_TOOLS


def needs_conforming_preprocessor(release: Version) -> bool:
    """Whether the headers of a CUDA release want ``cl`` to be given ``/Zc:preprocessor``."""
    return release >= Version.parse(_data()["conforming_preprocessor"])


def driver_floor(cuda_major: int, system: str, *, compressed: bool) -> Version:
    """The oldest NVIDIA driver that runs what that CUDA major version builds for ``linux`` or ``windows``.

    :raises IncompatibleError: for a CUDA major version that the table does not have.
    """
    for row in _data()["driver_floor"]:
        if row["cuda_major"] == cuda_major:
            return Version.parse(row[f"compressed_{system}" if compressed else system])
    known = ", ".join(str(row["cuda_major"]) for row in _data()["driver_floor"])
    raise IncompatibleError(f"CUDA {cuda_major} is not supported: builds are made with CUDA {known}.")
