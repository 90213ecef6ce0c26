"""What NVIDIA's drivers serve, and which one a build needs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.errors import IncompatibleError
from flashdepot.facts import read_table
from flashdepot.model.target import Version


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_suffix(".toml"))


def newest_cuda(driver: Version, system: str) -> Version | None:
    """The newest CUDA release that a driver serves; ``None`` for one older than the table, or another system."""
    served = [row["cuda"] for row in _data().get(system, []) if row["branch"] <= driver.major]
    return Version.parse(served[-1]) if served else None


def oldest_driver(cuda_major: int, system: str) -> Version | None:
    """The first branch that serves a CUDA major version; ``None`` for one that the table does not have."""
    rows = (row for row in _data().get(system, []) if Version.parse(row["cuda"]).major == cuda_major)
    row = next(rows, None)
    return Version(str(row["branch"])) if row else None


def cuda_of_ptx(version: tuple[int, int]) -> Version | None:
    """The oldest CUDA release whose driver compiles PTX of a version; ``None`` for one that the table lacks."""
    release = _data()["ptx"].get(f"{version[0]}.{version[1]}")
    return Version.parse(release) if release else None


def cuda_of_elf(abi: int) -> Version | None:
    """The oldest CUDA release whose driver loads machine code of an ELF ABI; ``None`` where every one does."""
    newer = [Version.parse(cuda) for known, cuda in _data()["elf_abi"].items() if int(known) <= abi]
    return max(newer, default=None)


def driver_floor(cuda_major: int, system: str, *, compressed: bool) -> Version:
    """The oldest NVIDIA driver that runs what that CUDA major version builds for ``linux`` or ``windows``.

    :raises IncompatibleError: for a CUDA major version that the table does not have.
    """
    for row in _data()["driver_floor"]:
        if row["cuda_major"] == cuda_major:
            return Version.parse(row[f"compressed_{system}" if compressed else system])
    known = ", ".join(str(row["cuda_major"]) for row in _data()["driver_floor"])
    raise IncompatibleError(f"CUDA {cuda_major} is not supported: builds are made with CUDA {known}.")
