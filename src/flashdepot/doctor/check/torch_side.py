"""The torch that an extension is to be loaded with: from its files, or from the table of torch's versions."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from flashdepot.binary.elf import ElfFile
from flashdepot.binary.kind import FileKind, identify
from flashdepot.binary.pe import PeFile
from flashdepot.binary.window import open_window
from flashdepot.doctor.check.subject import TORCH_SYMBOL
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.host.torch_builds import default_cxx11_abi
from flashdepot.model.target import Version
from flashdepot.system.toml import read_toml

_TABLE = Path(__file__).with_name("torch_symbols.toml")
_SYMBOLS = Path(__file__).with_name("torch_symbols.csv")
_NEW_ABI = re.compile(r"__cxx1112basic_string|B5cxx11")
_OLD_ABI = re.compile(r"^_Z\w*?(?:RKSs|ESs|Ss$)")
_TORCH_FILE = re.compile(r"(?:lib)?(?:c10|torch|shm)(?:_\w+)?\.(?:so|dll)")


class TorchSide(Protocol):
    """A torch, as far as it is known.

    ``cuda`` is its CUDA version's major number, ``new_abi`` whether its ``std::string`` is the C++11 one; ``None`` is
    unknown. ``proof`` is true when its files were read, so that a symbol that fits the table is enough of an answer.
    """

    @property
    def label(self) -> str:
        """How evidence names it."""

    @property
    def proof(self) -> bool:
        """Whether every symbol can be told."""

    @property
    def cuda(self) -> int | None:
        """Major version of its CUDA; 0 for a build without."""

    @property
    def new_abi(self) -> bool | None:
        """Whether it has the C++11 ABI."""

    def exports(self, symbol: str) -> bool | None:
        """Whether it has a symbol."""

    def has_library(self, name: str) -> bool:
        """Whether a library of that file name comes with it."""


@dataclass(frozen=True)
class InstalledTorch:
    """torch as its folder shows it."""

    version: str
    cuda: int | None
    new_abi: bool | None
    exported: frozenset[str]
    libraries: frozenset[str]
    proof: bool = True

    @property
    def label(self) -> str:
        """``torch 2.8.0+cu128``."""
        return f"torch {self.version}"

    def exports(self, symbol: str) -> bool | None:
        """Whether one of its libraries exports a symbol."""
        return symbol in self.exported

    def has_library(self, name: str) -> bool:
        """Whether ``torch/lib`` holds a file of that name."""
        return name in self.libraries


def read_installed_torch(folder: Path) -> InstalledTorch:
    """Read ``site-packages/torch`` without importing it: ``version.py`` as text, ``lib/`` by our readers.

    :raises IntegrityError: when one of its libraries is damaged.
    """
    text = (folder / "version.py").read_text(errors="replace") if (folder / "version.py").is_file() else ""
    version = re.search(r"__version__ *(?::[^=]*)?= *['\"]([^'\"]+)", text)
    cuda = re.search(r"^cuda *(?::[^=\n]*)?= *(?:['\"](\d+)|(None))", text, re.MULTILINE)
    exported: set[str] = set()
    libraries = {path.name for path in (folder / "lib").glob("*") if path.is_file()}
    for name in sorted(libraries):
        if _TORCH_FILE.fullmatch(name):
            exported |= _exported(folder / "lib" / name)
    return InstalledTorch(
        version=version[1] if version else "of an unknown version",
        cuda=None if cuda is None else int(cuda[1] or 0),
        new_abi=abi_of(exported),
        exported=frozenset(exported),
        libraries=frozenset(libraries),
    )


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


@dataclass(frozen=True)
class TabledTorch:
    """A torch that is known by its version alone: ``2.8``, ``2.6+cu126``."""

    version: Version
    local: str
    machine: str

    proof: bool = False

    @classmethod
    def parse(cls, text: str, machine: str) -> TabledTorch:
        """Read the value of ``--torch``.

        :raises UsageError: for what is no version, or one that the table does not have.
        """
        release, _, local = text.strip().partition("+")
        version = Version.parse(release)
        table = _table()
        oldest, newest = Version.parse(table["oldest"]), Version.parse(table["newest"])
        minor = Version.parse(".".join(release.split(".")[:2]))
        if not oldest <= minor <= newest or "." not in release:
            raise UsageError(
                f"The table of torch's symbols has {oldest} to {newest}, not {text}.",
                hint="Name the Python that has that torch instead: --python PY",
            )
        return cls(minor if minor == version else version, local, machine)

    @property
    def label(self) -> str:
        """``torch 2.8``."""
        return f"torch {self.version}" + (f"+{self.local}" if self.local else "")

    @property
    def minor(self) -> Version:
        """The part of the version that the table goes by."""
        return Version(".".join(self.version.text.split(".")[:2]))

    @property
    def cuda(self) -> int | None:
        """The major number of its local version ``cu128``; 0 of ``cpu``."""
        match = re.fullmatch(r"cu(\d+)\d", self.local)
        return int(match[1]) if match else 0 if self.local == "cpu" else None

    @property
    def new_abi(self) -> bool | None:
        """By the table of torch's builds."""
        return default_cxx11_abi(str(self.minor), self.local, self.machine)

    def exports(self, symbol: str) -> bool | None:
        """By the table; ``None`` for a symbol that is not in it."""
        span = span_of(symbol)
        return None if span is None else span[0] <= self.minor <= span[1]

    def has_library(self, name: str) -> bool:
        """Whether torch 2 has a library of that name."""
        return (
            re.fullmatch(r"lib(?:c10|torch)(?!_cuda_c(?:pp|u)\.)(?:_\w+)?\.so|(?:c10|torch)(?:_\w+)?\.dll", name)
            is not None
        )


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
    return read_toml(_TABLE)


@cache
def _symbols() -> dict[str, tuple[str, str]]:
    with _SYMBOLS.open(newline="") as file:
        return {row["symbol"]: (row["since"], row["until"]) for row in csv.DictReader(file)}
