"""Facts about one Python environment, read from its interpreter and its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flashdepot.model.target import Version


@dataclass(frozen=True)
class Torch:
    """The PyTorch of an environment: its version as it is spelled, and what it was built with.

    ``cuda`` is ``None`` for a build without CUDA, ``hip`` for one without ROCm. ``cxx11_abi`` says which C++ ABI of
    libstdc++ it uses, ``None`` where there is but one (Windows) or the files do not tell.
    """

    version: str
    cuda: Version | None
    hip: str | None
    cxx11_abi: bool | None
    folder: str

    @property
    def release(self) -> Version:
        """The numbers of the version, without a pre-release or a local part: ``2.8.0`` of ``2.8.0a0+cu128``."""
        match = re.match(r"\d+(?:\.\d+)*", self.version)
        return Version.parse(match[0]) if match else Version("0")

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {**asdict(self), "cuda": str(self.cuda) if self.cuda else None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Torch:
        """Read what :meth:`to_json` wrote."""
        return cls(
            version=str(data["version"]),
            cuda=Version.parse(data["cuda"]) if data["cuda"] else None,
            hip=data["hip"],
            cxx11_abi=data["cxx11_abi"],
            folder=str(data["folder"]),
        )


@dataclass(frozen=True)
class Extension:
    """A compiled module of FlashAttention in an environment: its import name and its file."""

    module: str
    path: str


@dataclass(frozen=True)
class PythonEnvironment:
    """One interpreter and what is installed for it.

    ``tag`` is the interpreter's tag as wheels spell it (``cp312``, ``cp313t``), ``platform`` is sysconfig's
    (``linux-x86_64``, ``win-amd64``). ``virtual``: a virtual environment. ``managed``: marked by its distribution as
    not to be changed (PEP 668). ``conda``: a conda environment. ``writable``: its package folder ``site`` is.
    ``packages`` has the versions of those installed that matter here. ``shadow`` is a ``flash_attn`` folder in the
    working folder, which Python would import before any installed one.
    """

    executable: str
    version: Version
    implementation: str
    tag: str
    platform: str
    free_threaded: bool
    prefix: str
    site: str
    virtual: bool
    managed: bool
    conda: bool
    writable: bool
    torch: Torch | None
    packages: Mapping[str, str] = field(default_factory=dict)
    extensions: tuple[Extension, ...] = ()
    installers: tuple[str, ...] = ()
    shadow: str | None = None

    def to_json(self) -> dict[str, Any]:
        """All fields, in their order."""
        return {
            **{name: value for name, value in vars(self).items() if name != "torch"},
            "version": str(self.version),
            "torch": self.torch.to_json() if self.torch else None,
            "packages": dict(self.packages),
            "extensions": [asdict(e) for e in self.extensions],
            "installers": list(self.installers),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PythonEnvironment:
        """Read what :meth:`to_json` wrote; :raises KeyError, TypeError, ValueError: for what is missing or wrong."""
        return cls(
            executable=str(data["executable"]),
            version=Version.parse(data["version"]),
            implementation=str(data["implementation"]),
            tag=str(data["tag"]),
            platform=str(data["platform"]),
            free_threaded=bool(data["free_threaded"]),
            prefix=str(data["prefix"]),
            site=str(data["site"]),
            virtual=bool(data["virtual"]),
            managed=bool(data["managed"]),
            conda=bool(data["conda"]),
            writable=bool(data["writable"]),
            torch=Torch.from_json(data["torch"]) if data["torch"] else None,
            packages={str(name): str(version) for name, version in dict(data["packages"]).items()},
            extensions=tuple(Extension(str(e["module"]), str(e["path"])) for e in data["extensions"]),
            installers=tuple(str(name) for name in data["installers"]),
            shadow=data["shadow"],
        )
