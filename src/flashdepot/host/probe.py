"""The whole record of this machine, or the part of it that decides what runs on it.

NVIDIA's GPUs and driver are asked through NVML's C interface: the package that has all of NVML takes longer to import
than a depot hit takes.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.files.disk import text_of
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.target import Architecture, Platform, Version

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


def runtime_facts(*, gpus: bool = True) -> HostRecord:
    """The facts that decide what runs here: platform, libc, driver and GPUs. Quick: no other program is started.

    Memory and cores are 0 and the lists of tools empty: they matter only to builds.

    :param gpus: look for GPUs; otherwise there are none in the record, for somebody who has named those that are meant.
    """
    driver, found = probe_gpus() if gpus else (probe_driver(), ())
    libc, libc_name = libc_version(), "glibc"
    if libc is None:
        from flashdepot.host import surroundings  # noqa: PLC0415  (where the C library is GNU's, nobody asks)

        libc_name = surroundings.libc_name()
    return HostRecord(
        platform=this_platform(),
        os_name=_os_name(),
        libc=libc,
        libc_name=libc_name,
        cores=0,
        memory=0,
        driver=driver,
        gpus=found,
        toolkits=(),
        compilers=(),
    )


def wheel_facts(python: str | None = None, *, environment: bool = True, gpus: bool = True) -> HostRecord:
    """The facts that decide which wheel fits here, as far as its name tells: :func:`runtime_facts` and a Python.

    :param python: as for :func:`probe`.
    :param environment: look at the Python environment, which is asked in a process of its own.
    :param gpus: as for :func:`runtime_facts`.
    :raises UsageError: when ``python`` names no interpreter that answers.
    """
    facts = runtime_facts(gpus=gpus)
    found, why = None, ""
    if environment:
        from flashdepot.host.python_environment import look_for_python  # noqa: PLC0415  (a depot hit needs none of it)

        found, why = look_for_python(python)
    from flashdepot.facts.gpus import newest_cuda  # noqa: PLC0415

    cuda = newest_cuda(facts.driver, facts.platform.system) if facts.driver else None
    return replace(facts, driver_cuda=cuda, python=found, no_python=why)


def with_tools(host: HostRecord) -> HostRecord:
    """A record of this machine with its CUDA toolkits and host compilers, each of which is asked its version."""
    from flashdepot.host.tools import find_compilers, find_toolkits  # noqa: PLC0415

    return replace(host, toolkits=find_toolkits(), compilers=find_compilers())


def probe(python: str | None = None, depot: Path | None = None, *, tools: bool = True) -> HostRecord:
    """All that flashdepot knows of this machine; asks every compiler and nvcc that it finds, at the same time.

    No CUDA context is made, and torch is read from its files.

    :param python: an interpreter or the folder of an environment; ``None`` for the one that is meant by
        :func:`flashdepot.host.python_environment.choose_python`.
    :param depot: the folder of the depot, to know its disk.
    :param tools: look for CUDA toolkits and host compilers; otherwise there are none in the record.
    :raises UsageError: when ``python`` names no interpreter that answers.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (a depot hit needs none of these)

    from flashdepot.host import surroundings  # noqa: PLC0415
    from flashdepot.host.surroundings import probe_disks, system_cxx_versions  # noqa: PLC0415
    from flashdepot.host.tools import find_compilers, find_toolkits  # noqa: PLC0415

    with ThreadPoolExecutor() as pool:
        toolkits = pool.submit(find_toolkits) if tools else None
        compilers = pool.submit(find_compilers) if tools else None
        facts = wheel_facts(python)
        libstdcxx, cxxabi = system_cxx_versions()
        return replace(
            facts,
            cores=surroundings.usable_cores(),
            memory=surroundings.usable_memory(),
            toolkits=toolkits.result() if toolkits else (),
            compilers=compilers.result() if compilers else (),
            libstdcxx=libstdcxx,
            cxxabi=cxxabi,
            nvidia_devices=nvidia_devices(),
            container=surroundings.container(),
            wsl=surroundings.is_wsl(),
            long_paths=surroundings.long_paths(),
            memory_facts=surroundings.memory_facts(),
            disks=probe_disks(depot),
            variables=surroundings.variables(),
            dangling=surroundings.dangling(),
            programs=surroundings.programs(),
        )


def this_platform() -> Platform:
    """Operating system and CPU of this machine, named as wheels name them."""
    return Platform.of(platform.system().lower(), platform.machine())


def libc_version() -> Version | None:
    """The GNU C library's version; ``None`` on musl, Windows and macOS."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return Version.parse(version) if name == "glibc" else None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return f"{platform.system()} {platform.release()}"


def saved_host(path: Path) -> HostRecord:
    """Read what ``flashdepot host --save`` wrote; :raises UsageError: when there is no such file, or it is not a host record."""
    from flashdepot.files.documents import read_json  # noqa: PLC0415  (most commands look at this machine)

    hint = "Write one with: flashdepot host --save FILE"
    try:
        return HostRecord.from_json(read_json(path))
    except FileNotFoundError:
        raise UsageError(f"There is no host record {path}.", hint=hint) from None
    except (IntegrityError, ValueError, AttributeError, OSError) as error:
        raise UsageError(f"{path} is not a host record: {error}", hint=hint) from error
