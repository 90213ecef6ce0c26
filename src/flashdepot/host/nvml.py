"""NVIDIA GPUs and their driver as NVML tells them, by its C interface.

The package that has all of NVML takes longer to import than a hit of the depot takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from flashdepot.errors import FlashdepotError
from flashdepot.model.host import Gpu
from flashdepot.model.target import Architecture, Version

_SUCCESS = 0
_TEXT = 96
"""Bytes of a text: NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest of those asked for here (nvml.h)."""

_NVML = {
    True: ("libnvidia-ml.so.1",),
    False: ("nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll"),
}
"""The driver's library on POSIX and on Windows, where old drivers put it beside nvidia-smi."""


def ask_nvml() -> tuple[Version, tuple[Gpu, ...]] | None:
    """The driver and the GPUs it serves; ``None`` without NVML, or where it refuses."""
    nvml = _load_nvml()
    if nvml is None or nvml.nvmlInit_v2() != _SUCCESS:
        return None
    try:
        text, count = ctypes.create_string_buffer(_TEXT), ctypes.c_uint()
        _require(nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(_TEXT)))
        driver = Version.parse(text.value.decode())
        _require(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        return driver, tuple(_gpu(nvml, index) for index in range(count.value))
    except (FlashdepotError, ValueError, AttributeError):  # AttributeError: an NVML without one of these functions
        return None
    finally:
        nvml.nvmlShutdown()


def _load_nvml() -> ctypes.CDLL | None:
    for name in _NVML[os.name == "posix"]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    memory, name = (ctypes.c_ulonglong * 3)(), ctypes.create_string_buffer(_TEXT)
    _require(nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)))
    _require(nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)))
    _require(nvml.nvmlDeviceGetMemoryInfo(device, memory))  # nvmlMemory_t: total, free and used
    _require(nvml.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT)))
    return Gpu(name.value.decode(), Architecture(major.value, minor.value), memory[0])


def _require(status: int) -> None:
    if status != _SUCCESS:
        raise ValueError(f"NVML returned {status}")
