"""Facts about a machine, as a record that can be saved, sent and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Platform, Version

HOST_SCHEMA = 1


@dataclass(frozen=True)
class Gpu:
    """One GPU: its product name, compute capability, and memory in bytes."""

    name: str
    architecture: Architecture
    memory: int


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit: its root folder, nvcc's version, and where it was found (``CUDA_HOME``, ``PATH``, ...)."""

    root: str
    version: Version
    found_by: str


@dataclass(frozen=True)
class HostCompiler:
    """A C++ compiler: ``g++``, ``clang++`` or ``cl``, its program file and its version."""

    kind: str
    path: str
    version: Version


@dataclass(frozen=True)
class HostRecord:
    """What is known of one machine. Looking never changes it.

    ``memory`` is what a build may use, in bytes: the lower of what is available and the control group's limit.
    ``libc`` is the GNU C library's version, ``None`` elsewhere. ``toolkits`` and ``compilers`` come best first.
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

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first."""
        return {
            "schema": HOST_SCHEMA,
            "platform": str(self.platform),
            "os": self.os_name,
            "libc": str(self.libc) if self.libc else None,
            "cores": self.cores,
            "memory": self.memory,
            "driver": str(self.driver) if self.driver else None,
            "gpus": [{"name": g.name, "architecture": g.architecture.dotted, "memory": g.memory} for g in self.gpus],
            "toolkits": [{"root": t.root, "version": str(t.version), "found_by": t.found_by} for t in self.toolkits],
            "compilers": [{"kind": c.kind, "path": c.path, "version": str(c.version)} for c in self.compilers],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HostRecord:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: for another schema, a missing field or a value that cannot be.
        """
        if data.get("schema") != HOST_SCHEMA:
            raise ValueError(f"host record schema {data.get('schema')!r}: this flashdepot reads {HOST_SCHEMA}")
        try:
            return cls(
                platform=Platform.parse(data["platform"]),
                os_name=data["os"],
                libc=Version.parse(data["libc"]) if data["libc"] else None,
                cores=int(data["cores"]),
                memory=int(data["memory"]),
                driver=Version.parse(data["driver"]) if data["driver"] else None,
                gpus=tuple(Gpu(g["name"], Architecture.parse(g["architecture"]), g["memory"]) for g in data["gpus"]),
                toolkits=tuple(
                    CudaToolkit(t["root"], Version.parse(t["version"]), t["found_by"]) for t in data["toolkits"]
                ),
                compilers=tuple(
                    HostCompiler(c["kind"], c["path"], Version.parse(c["version"])) for c in data["compilers"]
                ),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"host record field missing or of the wrong type: {error}") from error
