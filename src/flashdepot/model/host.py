"""Facts about a machine, as a record that can be saved, sent and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from flashdepot.model.codec import plain, read_document
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.target import Architecture, Platform, Version

HOST_SCHEMA = 1


class Gpu(msgspec.Struct, frozen=True):
    """One GPU: its product name, compute capability, and memory in bytes."""

    name: str
    architecture: Architecture
    memory: int


class CudaToolkit(msgspec.Struct, frozen=True):
    """A CUDA toolkit: its root folder, nvcc's version, and where it was found (``CUDA_HOME``, ``PATH``, ...).

    ``missing`` names the files that a build needs and it lacks; ``codes`` are the architectures that its nvcc makes
    machine code for. The newest GCC and Clang (major versions) are those of its ``host_config.h``. ``None`` where nobody looked, or where it sets no limit.
    """

    root: str
    version: Version
    found_by: str
    missing: tuple[str, ...] | None = None
    codes: tuple[Architecture, ...] | None = None
    newest_gcc: int | None = None
    newest_clang: int | None = None


class HostCompiler(msgspec.Struct, frozen=True):
    """A C++ compiler: ``g++``, ``clang++`` or ``cl``, its program file and its version."""

    kind: str
    path: str
    version: Version


class MemoryFacts(msgspec.Struct, frozen=True):
    """Bytes of memory: all, what is available now, the control group's limit if it has one, and free swap."""

    total: int
    available: int
    limit: int | None
    swap: int


class Disk(msgspec.Struct, frozen=True):
    """The disk behind a folder that is used for ``temp``, ``cache`` or ``depot``.

    ``free`` is in bytes. ``filesystem`` is its type as the system calls it (``ext4``, ``tmpfs``, ``overlay``), empty
    where unknown. Folders with an equal ``device`` are on one file system, so that a file can be renamed across.
    """

    use: str
    path: str
    free: int
    filesystem: str
    device: str


class HostRecord(msgspec.Struct, frozen=True, rename={"os_name": "os"}):
    """What is known of one machine. Looking never changes it.

    ``memory`` is what a build may use, in bytes: the lower of what is available and the control group's limit.
    ``libc`` is the GNU C library's version, ``None`` elsewhere. ``toolkits`` and ``compilers`` come best first.

    What follows ``compilers`` is ``None``, or empty, where nobody looked: ``libc_name`` (``glibc``, ``musl``, or
    empty for another), ``libstdcxx`` and ``cxxabi`` (the newest ``GLIBCXX`` and ``CXXABI`` of the system's libstdc++),
    ``driver_cuda`` (the newest CUDA that the driver serves), ``nvidia_devices`` (display devices
    of NVIDIA on the PCI bus, whether a driver serves them or not), ``container`` (``docker``, ``podman``,
    ``kubernetes``, ``lxc``, another's name, or empty for none), ``wsl``, ``long_paths`` (Windows takes paths of more
    than 260 characters), ``variables`` (those of the environment that steer compilers and GPUs), ``dangling`` (those of them that
    name a program or folder that is not there) and ``programs``
    (path of each that is there). ``python`` is the environment that was asked about,
    and ``no_python`` says why there is none.
    """

    platform: Platform
    os_name: str
    libc: Version | None
    cores: int
    memory: int
    driver: Version | None
    gpus: tuple[Gpu, ...]
    toolkits: tuple[CudaToolkit, ...]
    compilers: tuple[HostCompiler, ...]
    libc_name: str | None = None
    libstdcxx: Version | None = None
    cxxabi: Version | None = None
    driver_cuda: Version | None = None
    nvidia_devices: int | None = None
    container: str | None = None
    wsl: bool | None = None
    long_paths: bool | None = None
    memory_facts: MemoryFacts | None = None
    disks: tuple[Disk, ...] = ()
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    dangling: tuple[str, ...] = ()
    programs: Mapping[str, str] | None = None
    python: PythonEnvironment | None = None
    no_python: str = ""

    def __repr__(self) -> str:
        gpus = ", ".join(gpu.name for gpu in self.gpus) or "no GPU"
        return (
            f"<HostRecord {self.platform}, {gpus}, driver {self.driver}, Python {self.python and self.python.version}>"
        )

    def disk(self, use: str) -> Disk | None:
        """The disk of a use, if it was checked."""
        return next((d for d in self.disks if d.use == use), None)

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first."""
        document = plain(self)
        for gpu, row in zip(self.gpus, document["gpus"], strict=True):
            row["architecture"] = gpu.architecture.dotted
        return {"schema": HOST_SCHEMA, **document}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HostRecord:
        """Read what :meth:`to_json` wrote; :raises ValueError: for another schema, a missing field or a value that cannot be."""
        return read_document(data, cls, HOST_SCHEMA)
