"""Facts about a machine, as a record that can be saved, sent and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict

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

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {
            **asdict(self),
            "version": str(self.version),
            "missing": list(self.missing) if self.missing is not None else None,
            "codes": [str(c) for c in self.codes] if self.codes is not None else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CudaToolkit:
        """Read what :meth:`to_json` wrote, or what an earlier form without the later fields did."""
        missing, codes = data.get("missing"), data.get("codes")
        return cls(
            root=str(data["root"]),
            version=Version.parse(data["version"]),
            found_by=str(data["found_by"]),
            missing=tuple(str(name) for name in missing) if missing is not None else None,
            codes=tuple(Architecture.parse(c) for c in codes) if codes is not None else None,
            newest_gcc=_optional_int(data.get("newest_gcc")),
            newest_clang=_optional_int(data.get("newest_clang")),
        )


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


class HostRecord(msgspec.Struct, frozen=True):
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

    def disk(self, use: str) -> Disk | None:
        """The disk of a use, if it was looked at."""
        return next((d for d in self.disks if d.use == use), None)

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first."""
        return {
            "schema": HOST_SCHEMA,
            "platform": str(self.platform),
            "os": self.os_name,
            "libc": str(self.libc) if self.libc else None,
            "libc_name": self.libc_name,
            "libstdcxx": str(self.libstdcxx) if self.libstdcxx else None,
            "cxxabi": str(self.cxxabi) if self.cxxabi else None,
            "container": self.container,
            "wsl": self.wsl,
            "long_paths": self.long_paths,
            "cores": self.cores,
            "memory": self.memory,
            "memory_facts": asdict(self.memory_facts) if self.memory_facts else None,
            "disks": [asdict(d) for d in self.disks],
            "driver": str(self.driver) if self.driver else None,
            "driver_cuda": str(self.driver_cuda) if self.driver_cuda else None,
            "nvidia_devices": self.nvidia_devices,
            "gpus": [{"name": g.name, "architecture": g.architecture.dotted, "memory": g.memory} for g in self.gpus],
            "toolkits": [t.to_json() for t in self.toolkits],
            "compilers": [{"kind": c.kind, "path": c.path, "version": str(c.version)} for c in self.compilers],
            "programs": dict(self.programs) if self.programs is not None else None,
            "variables": dict(self.variables),
            **({"dangling": list(self.dangling)} if self.dangling else {}),
            "python": self.python.to_json() if self.python else None,
            **({"no_python": self.no_python} if self.no_python else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HostRecord:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: for another schema, a missing field or a value that cannot be.
        """
        if data.get("schema") != HOST_SCHEMA:
            raise ValueError(f"host record schema {data.get('schema')!r}: this flashdepot reads {HOST_SCHEMA}")
        try:
            facts, programs, python = data.get("memory_facts"), data.get("programs"), data.get("python")
            return cls(
                platform=Platform.parse(data["platform"]),
                os_name=data["os"],
                libc=_optional_version(data["libc"]),
                cores=int(data["cores"]),
                memory=int(data["memory"]),
                driver=_optional_version(data["driver"]),
                gpus=tuple(
                    Gpu(g["name"], Architecture.parse(g["architecture"]), int(g["memory"])) for g in data["gpus"]
                ),
                toolkits=tuple(CudaToolkit.from_json(t) for t in data["toolkits"]),
                compilers=tuple(
                    HostCompiler(c["kind"], c["path"], Version.parse(c["version"])) for c in data["compilers"]
                ),
                libc_name=data.get("libc_name"),
                libstdcxx=_optional_version(data.get("libstdcxx")),
                cxxabi=_optional_version(data.get("cxxabi")),
                driver_cuda=_optional_version(data.get("driver_cuda")),
                nvidia_devices=_optional_int(data.get("nvidia_devices")),
                container=data.get("container"),
                wsl=data.get("wsl"),
                long_paths=data.get("long_paths"),
                memory_facts=_memory_facts(facts) if facts is not None else None,
                disks=tuple(
                    Disk(d["use"], d["path"], int(d["free"]), d["filesystem"], d["device"])
                    for d in data.get("disks", [])
                ),
                variables=dict(data.get("variables", {})),
                dangling=tuple(str(name) for name in data.get("dangling", ()) if name in data.get("variables", {})),
                programs=dict(programs) if programs is not None else None,
                python=PythonEnvironment.from_json(python) if python is not None else None,
                no_python=str(data.get("no_python", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"host record field missing or of the wrong type: {error}") from error


def _memory_facts(data: Mapping[str, Any]) -> MemoryFacts:
    return MemoryFacts(int(data["total"]), int(data["available"]), _optional_int(data["limit"]), int(data["swap"]))


def _optional_version(text: str | None) -> Version | None:
    return Version.parse(text) if text else None


def _optional_int(value: Any) -> int | None:
    return None if value is None else int(value)
