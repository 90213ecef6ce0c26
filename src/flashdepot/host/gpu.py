"""NVIDIA GPUs and their driver, through NVML, or nvidia-smi where NVML is missing."""

from __future__ import annotations

import ctypes
import os
import shutil

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.model.architecture import Architecture
from flashdepot.model.host import Gpu
from flashdepot.model.target import Version

_QUERY = "name,compute_cap,memory.total,driver_version"


def probe_gpus() -> tuple[Version | None, tuple[Gpu, ...]]:
    """The driver's version and the GPUs it serves; ``(None, ())`` on a machine without an NVIDIA driver."""
    return _through_nvml() or _through_nvidia_smi() or (None, ())


def _through_nvml() -> tuple[Version, tuple[Gpu, ...]] | None:
    if os.name == "posix":
        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None  # no driver: spare the machines without one the slow import
    import pynvml  # noqa: PLC0415  (as above)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        driver = Version.parse(pynvml.nvmlSystemGetDriverVersion())
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            gpus.append(Gpu(pynvml.nvmlDeviceGetName(handle), Architecture(major, minor), memory))
    except (pynvml.NVMLError, UsageError):
        return None
    else:
        return driver, tuple(gpus)
    finally:
        pynvml.nvmlShutdown()


def _through_nvidia_smi() -> tuple[Version, tuple[Gpu, ...]] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    from flashdepot.system.process import run  # noqa: PLC0415  (as above)

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
