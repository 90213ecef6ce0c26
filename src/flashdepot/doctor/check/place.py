"""Where the file is to be used: a machine, a Python, a torch; each only as far as it is known."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.binary.elf import read_shared_library
from flashdepot.doctor.check.torch_side import TorchSymbols
from flashdepot.fit import served_cuda
from flashdepot.host.libraries import CXX_LIBRARY, cxx_versions, system_folders
from flashdepot.model.architecture import Architecture
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.model.target import Version
from flashdepot.model.torch import NO_TORCH


class Place(msgspec.Struct, frozen=True, dict=True):
    """``gpus`` are compute capabilities, of the machine or named. ``is_here`` says whether the host is this machine.

    ``python`` and ``torch`` are those that were named, or found here. ``environment`` are the facts, where more is known
    than these say.
    """

    host: HostRecord
    gpus: tuple[Architecture, ...]
    python: PythonEnvironment | None
    torch: TorchSymbols | None
    is_here: bool
    environment: Environment | None = None

    @cached_property
    def facts(self) -> Environment:
        """What the rules of fit ask of a place, but for libstdc++, which must be looked for."""
        host = self.host
        torch = None
        if self.torch is not None:
            known = self.torch.torch.cxx11_abi if self.environment is not None else None
            torch = replace(self.torch.torch, cxx11_abi=self.torch.new_abi if known is None else known)
        elif self.python is not None:
            torch = NO_TORCH
        if self.environment is not None:
            return replace(self.environment, torch=torch or self.environment.torch, glibcxx=None, cxxabi=None)
        return Environment(
            platform=host.platform,
            libc_name=host.libc_name if host.libc_name is not None else "glibc" if host.libc else None,
            libc=host.libc,
            python=self.python.interpreter if self.python else None,
            torch=torch,
            gpus=self.gpus,
            driver=host.driver,
            driver_cuda=host.driver_cuda,
        )

    @cached_property
    def facts_with_libstdcxx(self) -> Environment:
        """The same, with the libstdc++ that is loaded."""
        return replace(self.facts, glibcxx=self.libstdcxx, cxxabi=self.cxxabi)

    @property
    def libstdcxx(self) -> Version | None:
        """The newest ``GLIBCXX_*`` of the libstdc++ that is loaded, here conda's before the system's."""
        return self._cxx[0]

    @property
    def cxxabi(self) -> Version | None:
        """Its newest ``CXXABI_*``."""
        return self._cxx[1]

    @property
    def driver_cuda(self) -> Version | None:
        """The newest CUDA that the driver serves; ``None`` where no driver is known."""
        return served_cuda(self.facts)

    @cached_property
    def _cxx(self) -> tuple[Version | None, Version | None]:
        if not self.is_here:
            return self.host.libstdcxx, self.host.cxxabi
        path = self.find_library(CXX_LIBRARY)
        return cxx_versions(path) if path is not None else (None, None)

    def find_library(self, name: str, near: Iterable[Path] = ()) -> Path | None:
        """The file that the loader, or torch when it is imported, would take for a soname; ``None`` without one."""
        return next((folder / name for folder in (*near, *self._folders) if (folder / name).is_file()), None)

    def exports_of(self, library: str, needed: Iterable[str]) -> tuple[frozenset[str], str]:
        """What a library of CUDA exports here, ``nccl`` or ``cublas``, and its file's name; empty where it is not here.

        The files that are ``needed`` count, else all of that name beside torch: its import brings them.

        :raises IntegrityError: when one of them is damaged.
        """
        of_it = re.compile(rf"lib{library}(?:_\w+)?\.so(?:\.\d+)*")
        named = [path for name in needed if of_it.fullmatch(name) and (path := self.find_library(name))]
        files = named or [
            path
            for folder in self._folders
            for path in sorted(folder.glob(f"lib{library}*"))
            if of_it.fullmatch(path.name)
        ]
        exported = frozenset[str]().union(*(read_shared_library(path).exported for path in files))
        return exported, files[0].name if files else ""

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        if not self.is_here:
            return ()
        folders = [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        if self.python is not None:
            folders += [prefix / "lib" for prefix in (self.python.prefix, self.python.base_prefix)]
            for path in self.python.search:
                folders += [path / "torch" / "lib", *sorted(path.glob("nvidia/*/lib")), path / "cusparselt" / "lib"]
        return (*folders, *system_folders())
