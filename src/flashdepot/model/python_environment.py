"""One Python environment: its interpreter, its folders, and what is installed there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from flashdepot.model.target import Platform, Version
from flashdepot.model.torch import Torch
from flashdepot.model.wheel_tag import Interpreter

_WINDOWS_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class Extension(msgspec.Struct, frozen=True):
    """A compiled module of FlashAttention in an environment: its import name and its file."""

    module: str
    path: str


class PythonEnvironment(msgspec.Struct, frozen=True):
    """One interpreter and what is installed for it.

    ``tag`` is the interpreter's tag as wheels spell it (``cp312``, ``cp313t``), ``platform`` is sysconfig's
    (``linux-x86_64``, ``win-amd64``). ``virtual``: a virtual environment. ``managed``: marked by its distribution as
    not to be changed (PEP 668). ``conda``: a conda environment. ``writable``: its package folder ``purelib`` is.
    ``packages`` has the versions of those installed that matter here. ``shadow`` is a ``flash_attn`` folder in the
    working folder, which Python would import before any installed one.

    ``purelib``, ``platlib``, ``scripts`` and ``data`` are where the parts of a wheel are installed (PEP 427), and
    ``search`` is where modules are imported from, neither the user's site nor ``PYTHONPATH`` included. ``library`` is
    the shared library of an interpreter that has one. ``found_by`` says why it is this environment.
    What follows ``extensions`` is empty in records of an earlier form.
    """

    executable: Path
    version: Version
    implementation: str
    tag: str
    platform: str
    free_threaded: bool
    prefix: Path
    purelib: Path
    virtual: bool
    managed: bool
    conda: bool
    writable: bool
    torch: Torch | None
    packages: Mapping[str, str] = msgspec.field(default_factory=dict)
    extensions: tuple[Extension, ...] = ()
    installers: tuple[str, ...] = ()
    shadow: str | None = None
    base_prefix: Path = Path()
    platlib: Path = Path()
    scripts: Path = Path()
    data: Path = Path()
    search: tuple[Path, ...] = ()
    libc: Version | None = None
    library: Path | None = None
    found_by: str = ""

    @property
    def is_system(self) -> bool:
        """Whether it is an interpreter's own, which other programs may need, and no virtual or conda environment."""
        return not self.virtual and not self.conda

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter as far as tags of wheels go."""
        major, minor, *_ = (*self.version.numbers, 0)
        return Interpreter(self.implementation.lower(), (major, minor), self.free_threaded)

    @property
    def label(self) -> str:
        """``Python 3.11``."""
        name = "Python" if self.implementation == "CPython" else self.implementation
        threads = ", free-threaded" if self.free_threaded else ""
        return "{} {}.{}{}".format(name, *self.interpreter.version, threads)

    @property
    def runs_on(self) -> Platform:
        """The system and CPU that the interpreter is for: a 32-bit one differs from its machine."""
        system, _, machine = self.platform.partition("-")
        if system == "win":
            return Platform("windows", _WINDOWS_MACHINES.get(machine, machine))
        return Platform(system, machine)

    def to_json(self) -> dict[str, Any]:
        """All fields; of those that earlier forms lack, the known ones."""
        later: dict[str, Any] = {name: str(getattr(self, name)) for name in _LATER if getattr(self, name) != Path()}
        later |= {"search": [str(path) for path in self.search]} if self.search else {}
        later |= {name: str(value) for name in ("libc", "library", "found_by") if (value := getattr(self, name))}
        return {
            "executable": str(self.executable),
            "version": str(self.version),
            "implementation": self.implementation,
            "tag": self.tag,
            "platform": self.platform,
            "free_threaded": self.free_threaded,
            "prefix": str(self.prefix),
            "site": str(self.purelib),
            "virtual": self.virtual,
            "managed": self.managed,
            "conda": self.conda,
            "writable": self.writable,
            "torch": self.torch.to_json() if self.torch else None,
            "packages": dict(self.packages),
            "extensions": [asdict(e) for e in self.extensions],
            "installers": list(self.installers),
            "shadow": self.shadow,
            **later,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PythonEnvironment:
        """Read what :meth:`to_json` wrote; :raises KeyError, TypeError, ValueError: for what is missing or wrong."""
        return cls(
            executable=Path(data["executable"]),
            version=Version.parse(data["version"]),
            implementation=str(data["implementation"]),
            tag=str(data["tag"]),
            platform=str(data["platform"]),
            free_threaded=bool(data["free_threaded"]),
            prefix=Path(data["prefix"]),
            purelib=Path(data["site"]),
            virtual=bool(data["virtual"]),
            managed=bool(data["managed"]),
            conda=bool(data["conda"]),
            writable=bool(data["writable"]),
            torch=Torch.from_json(data["torch"]) if data["torch"] else None,
            packages={str(name): str(version) for name, version in dict(data["packages"]).items()},
            extensions=tuple(Extension(str(e["module"]), str(e["path"])) for e in data["extensions"]),
            installers=tuple(str(name) for name in data["installers"]),
            shadow=data["shadow"],
            **{name: Path(data[name]) for name in _LATER if name in data},
            search=tuple(Path(path) for path in data.get("search", ())),
            libc=Version.parse(data["libc"]) if data.get("libc") else None,
            library=Path(data["library"]) if data.get("library") else None,
            found_by=str(data.get("found_by", "")),
        )


_LATER = ("base_prefix", "platlib", "scripts", "data")
"""Folders that records of an earlier form lack."""
