"""Where the file is to be used: a machine, a Python, a torch; each only as far as it is known."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.binary.coff import PeFile
from flashdepot.binary.elf import ElfFile, read_shared_library
from flashdepot.binary.window import FileKind, identify, open_window
from flashdepot.diagnose.check.subject import TORCH_SYMBOL
from flashdepot.errors import IntegrityError
from flashdepot.facts import about_torch_symbols, default_cxx11_abi, torch_symbols
from flashdepot.host.surroundings import CXX_LIBRARY, cxx_versions, system_folders
from flashdepot.model.environment import NO_TORCH, Accelerator, Environment, PythonEnvironment, Torch
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Version

_NEW_ABI = re.compile(r"__cxx1112basic_string|B5cxx11")
_OLD_ABI = re.compile(r"^_Z\w*?(?:RKSs|ESs|Ss$)")
_TORCH_FILE = re.compile(r"(?:lib)?(?:c10|torch|shm)(?:_\w+)?\.(?:so|dll)")


class _Symbols(msgspec.Struct, frozen=True):
    torch: Torch

    @property
    def label(self) -> str:
        """``torch 2.8.0+cu128``, ``torch 2.8``."""
        return self.torch.label


class InstalledTorch(_Symbols, frozen=True):
    """torch as the symbols of its libraries show it.

    ``new_abi`` says whether its ``std::string`` is the C++11 one; ``None`` is unknown.
    """

    new_abi: bool | None
    exported: frozenset[str]

    def exports(self, symbol: str) -> bool | None:
        """Whether one of its libraries exports a symbol."""
        return symbol in self.exported

    def has_library(self, name: str) -> bool:
        """Whether ``torch/lib`` holds a file of that name."""
        return name in self.torch.libraries


def read_installed_torch(torch: Torch) -> InstalledTorch:
    """Read the libraries of an installed torch with our own readers."""
    exported = exported_symbols(Path(torch.folder, "lib"), torch.libraries)
    by_symbols = abi_of(exported)
    return InstalledTorch(torch, torch.cxx11_abi if by_symbols is None else by_symbols, exported)


def exported_symbols(folder: Path, libraries: Iterable[str]) -> frozenset[str]:
    """All that torch's own ones of some libraries export."""
    return frozenset[str]().union(*(_exported(folder / name) for name in libraries if _TORCH_FILE.fullmatch(name)))


def _exported(path: Path) -> frozenset[str]:
    with open_window(path) as window:
        if identify(window) is FileKind.PE_LIBRARY:
            return PeFile(window).exported
        try:
            symbols = ElfFile(window).symbols()
            return frozenset(s.name for s in symbols if s.exported and TORCH_SYMBOL.match(s.name))
        except IntegrityError as error:
            error.hint = f"Install torch again: {path} is not what it was."
            raise


def abi_of(symbols: frozenset[str] | set[str]) -> bool | None:
    """True for names that carry the C++11 ``std::string``, false for the old one, ``None`` when none carries either."""
    if any(_NEW_ABI.search(symbol) for symbol in symbols):
        return True
    return False if any(_OLD_ABI.search(symbol) for symbol in symbols) else None


class TabledTorch(_Symbols, frozen=True):
    """A torch that is known only by its version: ``2.8``, ``2.6+cu126``."""

    machine: str

    @property
    def minor(self) -> Version:
        """The part of the version that the table goes by."""
        return Version(self.torch.minor)

    @property
    def new_abi(self) -> bool | None:
        """By the table of torch's builds."""
        return default_cxx11_abi(self.torch.minor, self.torch.version.partition("+")[2], self.machine)

    def exports(self, symbol: str) -> bool | None:
        """By the table; ``None`` for a symbol that is not in it, and for a torch older or newer than all of it."""
        span, table = span_of(symbol), _table()
        if span is None or not Version.parse(table["oldest"]) <= self.minor <= Version.parse(table["newest"]):
            return None
        return span[0] <= self.minor <= span[1]

    def has_library(self, name: str) -> bool:
        """Whether torch 2 has a library of that name, and this build of it."""
        if "_cuda" in name and self.torch.accelerator in {Accelerator.CPU, Accelerator.ROCM}:
            return False
        torch_two = r"lib(?:c10|torch)(?!_cuda_c(?:pp|u)\.)(?:_\w+)?\.so|(?:c10|torch)(?:_\w+)?\.dll"
        return re.fullmatch(torch_two, name) is not None


TorchSymbols = InstalledTorch | TabledTorch
"""What an extension finds in a torch, as far as it is known."""


def span_of(symbol: str) -> tuple[Version, Version] | None:
    """The first and the last torch minor with a symbol, ``None`` where the table does not have it."""
    table = _table()
    span = _symbols().get(symbol)
    if span is None:
        patterns = (p for p in table["pattern"] if re.match(p["matches"], symbol))
        span = next(((p.get("since", ""), p.get("until", "")) for p in patterns), None)
    return None if span is None else (Version(span[0] or table["oldest"]), Version(span[1] or table["newest"]))


def built_for(symbols: frozenset[str]) -> str:
    """The torch minors that have all of the symbols: ``2.3 to 2.7``; empty when the table cannot tell."""
    spans = [span for span in map(span_of, symbols) if span is not None]
    if not spans:
        return ""
    since, until = max(span[0] for span in spans), min(span[1] for span in spans)
    table = _table()
    if since > until or (str(since), str(until)) == (table["oldest"], table["newest"]):
        return ""
    if since == until:
        return str(since)
    if str(until) == table["newest"]:
        return f"{since} or newer"
    return f"{until} or older" if str(since) == table["oldest"] else f"{since} to {until}"


@cache
def _table() -> dict[str, Any]:
    return dict(about_torch_symbols())


@cache
def _symbols() -> dict[str, tuple[str, str]]:
    return {row["symbol"]: (row["since"], row["until"]) for row in torch_symbols()}


class Place(msgspec.Struct, frozen=True, dict=True):
    """``is_here`` says whether the host is this machine. ``python`` and ``torch`` are those that were named, or found here.

    ``environment`` are the facts of it all, as far as they are known.
    """

    host: HostRecord
    python: PythonEnvironment | None
    torch: TorchSymbols | None
    is_here: bool
    environment: Environment

    @cached_property
    def facts(self) -> Environment:
        """What the rules of fit ask of a place, but for libstdc++, which must be looked for."""
        torch = NO_TORCH if self.python is not None else self.environment.torch
        if self.torch is not None:
            known = self.torch.torch.cxx11_abi
            torch = replace(self.torch.torch, cxx11_abi=self.torch.new_abi if known is None else known)
        return replace(self.environment, torch=torch, glibcxx=None, cxxabi=None)

    @cached_property
    def facts_with_libstdcxx(self) -> Environment:
        """The same, with the libstdc++ that is loaded, here conda's before the system's."""
        if not self.is_here:
            return replace(self.facts, glibcxx=self.host.libstdcxx, cxxabi=self.host.cxxabi)
        path = self.find_library(CXX_LIBRARY)
        glibcxx, cxxabi = cxx_versions(path) if path is not None else (None, None)
        return replace(self.facts, glibcxx=glibcxx, cxxabi=cxxabi)

    def find_library(self, name: str, near: Iterable[Path] = ()) -> Path | None:
        """The file that the loader, or torch when it is imported, would take for a soname; ``None`` without one."""
        return next((folder / name for folder in (*near, *self._folders) if (folder / name).is_file()), None)

    def exports_of(self, library: str, needed: Iterable[str]) -> tuple[frozenset[str], str]:
        """What a library of CUDA exports here, ``nccl`` or ``cublas``, and its file's name; empty where it is not here.

        The files that are ``needed`` count, else all of that name next to torch: its import brings them.
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
