"""What an NVIDIA driver serves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.model.target import Version
from flashdepot.system.toml import read_toml

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


@cache
def _data() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("driver_cuda.toml"))


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


def nvidia_devices(pci: Path = _PCI) -> int | None:
    """How many NVIDIA display devices the PCI bus has; ``None`` where the system does not show its bus as files."""
    if not pci.is_dir():
        return None
    return sum(
        1
        for device in pci.iterdir()
        if _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith(_DISPLAY)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
