"""What CUDA releases need: drivers, and host compilers."""

from __future__ import annotations

from flashdepot.errors import IncompatibleError
from flashdepot.facts import table
from flashdepot.model.target import Version


def newest_cuda(driver: Version, system: str) -> Version | None:
    """The newest CUDA release that a driver serves; ``None`` for one older than the table, or another system."""
    served = [row["cuda"] for row in table("drivers").get(system, []) if row["branch"] <= driver.major]
    return Version.parse(served[-1]) if served else None


def oldest_driver(cuda_major: int, system: str) -> Version | None:
    """The first branch that serves a CUDA major version; ``None`` for one that the table does not have."""
    rows = (row for row in table("drivers").get(system, []) if Version.parse(row["cuda"]).major == cuda_major)
    row = next(rows, None)
    return Version(str(row["branch"])) if row else None


def cuda_of_ptx(version: tuple[int, int]) -> Version | None:
    """The oldest CUDA release whose driver compiles PTX of a version; ``None`` for one that the table lacks."""
    release = table("drivers")["ptx"].get(f"{version[0]}.{version[1]}")
    return Version.parse(release) if release else None


def cuda_of_elf(abi: int) -> Version | None:
    """The oldest CUDA release whose driver loads machine code of an ELF ABI; ``None`` where every one does."""
    newer = [Version.parse(cuda) for known, cuda in table("drivers")["elf_abi"].items() if int(known) <= abi]
    return max(newer, default=None)


def driver_floor(cuda_major: int, system: str, *, compressed: bool) -> Version:
    """The oldest NVIDIA driver that runs what that CUDA major version builds for ``linux`` or ``windows``."""
    for row in table("drivers")["driver_floor"]:
        if row["cuda_major"] == cuda_major:
            return Version.parse(row[f"compressed_{system}" if compressed else system])
    known = ", ".join(str(row["cuda_major"]) for row in table("drivers")["driver_floor"])
    raise IncompatibleError(f"CUDA {cuda_major} is not supported: builds are made with CUDA {known}.")


def host_compiler_limits(release: Version) -> tuple[int | None, int | None]:
    """The newest GCC and Clang (major versions) that a CUDA release accepts; ``None`` for a release before the table."""
    rows = [row for row in table("compilers")["host_compiler"] if Version.parse(row["cuda"]) <= release]
    return (rows[-1]["gcc"], rows[-1]["clang"]) if rows else (None, None)


BUILD_TOOLS = (
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)
"""The command that installs Microsoft's compiler, its libraries and a Windows SDK without the rest."""


def needs_conforming_preprocessor(release: Version) -> bool:
    """Whether the headers of a CUDA release want ``cl`` to be given ``/Zc:preprocessor``."""
    return release >= Version.parse(table("compilers")["conforming_preprocessor"])
