"""NVIDIA's devices on the bus."""

from __future__ import annotations

from pathlib import Path

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


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
