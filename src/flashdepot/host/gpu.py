"""NVIDIA GPUs and their driver, through NVML, or nvidia-smi where NVML is missing; and the devices on the bus."""

from __future__ import annotations

import os
from pathlib import Path

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.model.host import Gpu
from flashdepot.model.target import Architecture, Version

_DEVICE = Path("/dev/nvidiactl")
_MODULE = Path("/sys/module/nvidia/version")

_QUERY = "name,compute_cap,memory.total,driver_version"


def probe_gpus() -> tuple[Version | None, tuple[Gpu, ...]]:
    """The driver's version and the GPUs it serves; ``(None, ())`` on a machine without an NVIDIA driver."""
    from flashdepot.host.nvml import ask_nvml  # noqa: PLC0415  (who names the GPUs asks for the driver alone)

    return ask_nvml() or _through_nvidia_smi() or (None, ())


def probe_driver() -> Version | None:
    """The driver's version alone, which Linux tells in a file: starting NVML takes longer than all else of an answer."""
    try:
        if _DEVICE.exists():  # in a container without GPUs the file is there as well, and the driver is not
            return Version.parse(_MODULE.read_text(encoding="ascii").strip())
    except (OSError, ValueError, UsageError):
        pass
    return probe_gpus()[0]


def _through_nvidia_smi() -> tuple[Version, tuple[Gpu, ...]] | None:
    if os.name == "posix" and not any(Path(folder, "nvidia-smi").exists() for folder in os.get_exec_path()):
        return None  # machines without a driver are spared the import
    from shutil import which  # noqa: PLC0415

    program = which("nvidia-smi")
    if program is None:
        return None
    from flashdepot.process.run import run  # noqa: PLC0415

    try:
        done = run([program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"], timeout=30)
        return parse_nvidia_smi(done.stdout) if done.status == 0 else None
    except FlashdepotError:
        return None


def parse_nvidia_smi(table: str) -> tuple[Version, tuple[Gpu, ...]] | None:
    """Read ``nvidia-smi --query-gpu=name,compute_cap,memory.total,driver_version --format=csv,noheader,nounits``.

    :returns: driver and GPUs, or ``None`` when the table has no readable row. Memory is in MiB there.
    """
    gpus = []
    driver = None
    for line in table.splitlines():
        fields = [field.strip() for field in line.rsplit(",", 3)]
        if len(fields) != len(_QUERY.split(",")):
            continue
        name, capability, memory, version = fields
        try:
            gpus.append(Gpu(name, Architecture.parse(capability), int(memory) << 20))
            driver = Version.parse(version)
        except (UsageError, ValueError):
            continue
    return (driver, tuple(gpus)) if driver else None


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
