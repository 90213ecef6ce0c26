"""NVIDIA GPUs and their driver, through NVML's C interface, and the devices on the bus.

The package that has all of NVML takes longer to import than a depot hit takes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.files.atomic import text_of
from flashdepot.model.host import Gpu
from flashdepot.model.target import Architecture, Version

if TYPE_CHECKING:
    import ctypes

_DEVICE = Path("/dev/nvidiactl")
_MODULE = Path("/sys/module/nvidia/version")

_SUCCESS = 0
_TEXT = 96
"""Bytes of a text: NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest of those asked for here (nvml.h)."""

_NVML = {
    True: ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"),
    False: ("nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll"),
}
"""The driver's library on POSIX, in WSL outside the loader's folders, and on Windows, where old drivers put it next to nvidia-smi."""


def probe_gpus() -> tuple[Version | None, tuple[Gpu, ...]]:
    """The driver's version and the GPUs it serves; ``(None, ())`` on a machine without an NVIDIA driver."""
    return _ask_nvml() or (None, ())


def probe_driver() -> Version | None:
    """Only the driver's version, which Linux has in a file: starting NVML takes longer than all else of an answer."""
    try:
        if _DEVICE.exists():  # in a container without GPUs the file is there as well, and the driver is not
            return Version.parse(_MODULE.read_text(encoding="ascii").strip())
    except (OSError, ValueError, UsageError):
        pass
    return probe_gpus()[0]


def _ask_nvml() -> tuple[Version, tuple[Gpu, ...]] | None:
    import ctypes  # noqa: PLC0415  (a depot hit asks only for the driver)

    nvml = _load_nvml()
    if nvml is None or nvml.nvmlInit_v2() != _SUCCESS:
        return None
    try:
        text, count = ctypes.create_string_buffer(_TEXT), ctypes.c_uint()
        _require_success(nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(_TEXT)))
        driver = Version.parse(text.value.decode())
        _require_success(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        return driver, tuple(_gpu(nvml, index) for index in range(count.value))
    except (FlashdepotError, ValueError, AttributeError):  # AttributeError: an NVML without one of these functions
        return None
    finally:
        nvml.nvmlShutdown()


def _load_nvml() -> ctypes.CDLL | None:
    import ctypes  # noqa: PLC0415  (as above)

    for name in _NVML[os.name == "posix"]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    import ctypes  # noqa: PLC0415  (as above)

    device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    memory, name = (ctypes.c_ulonglong * 3)(), ctypes.create_string_buffer(_TEXT)
    _require_success(nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)))
    _require_success(nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)))
    _require_success(nvml.nvmlDeviceGetMemoryInfo(device, memory))  # nvmlMemory_t: total, free and used
    _require_success(nvml.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT)))
    return Gpu(name.value.decode(), Architecture(major.value, minor.value), memory[0])


def _require_success(status: int) -> None:
    if status != _SUCCESS:
        raise ValueError(f"NVML returned {status}")


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
        if text_of(device / "vendor").strip() == _NVIDIA and text_of(device / "class").startswith(_DISPLAY)
    )
