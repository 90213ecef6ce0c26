"""Tables that age, each in one file with its source and date, and its loader.

Here are those of what others built: PyTorch, the symbols that it exports, and published wheels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.model.target import Architecture, Version
from flashdepot.model.wheel import version_key

_PACKAGE = Path(__file__).parents[1]
COPIES = Path(__file__).with_name("tables.json")
"""All tables once more, by the names of their files: reading TOML takes longer than most answers.

``scripts/write_tables.py`` writes it, and a test says when it is behind.
"""


def read_table(path: Path) -> dict[str, Any]:
    """What a TOML file of this package holds.

    :raises FileNotFoundError: when it is not there.
    """
    if path.is_relative_to(_PACKAGE):
        copy: dict[str, Any] = _copies()[path.relative_to(_PACKAGE).as_posix()]
        return copy
    from flashdepot.files.documents import read_toml  # noqa: PLC0415

    return read_toml(path)


@cache
def table(name: str) -> dict[str, Any]:
    """A table of this folder, by the name of its file without the ending."""
    return read_table(Path(__file__).with_name(f"{name}.toml"))


@cache
def _copies() -> dict[str, Any]:
    copies: dict[str, Any] = msgspec.json.decode(COPIES.read_bytes())
    return copies


def default_cxx11_abi(minor: str, local: str, machine: str) -> bool | None:
    """Whether a Linux build has the C++11 ABI of libstdc++; ``None`` where the builds of that version differ.

    :param minor: of the version, such as ``2.6``.
    :param local: the local version of the build, such as ``cu126``; empty where it is not known.
    """
    rule, version = table("torch_builds")["cxx11_abi"], Version.parse(minor)
    if version <= Version(rule["old_until"]):
        return False
    if version >= Version(rule["new_since"]) or machine == "aarch64":
        return True
    return local in rule["new_cuda"].get(minor, ()) if local else None


def default_cuda(minor: str) -> Version | None:
    """The CUDA of PyPI's wheels of a minor version for Linux on x86-64; ``None`` for a version outside the table."""
    rows = table("torch_builds")["default_cuda"]
    if Version.parse(minor) > Version(rows["newest_checked"]):
        return None
    known = [cuda for first, cuda in rows["since"].items() if Version(first) <= Version.parse(minor)]
    return Version(known[-1]) if known else None


@cache
def newest_gpu(cuda: Version) -> Architecture | None:
    """The newest GPU that PyTorch's own builds with a CUDA have kernels for; ``None`` for a CUDA before the table."""
    rows = [row for row in table("torch_builds")["newest_gpu"] if Version.parse(row["from_cuda"]) <= cuda]
    return Architecture.parse(rows[-1]["gpu"]) if rows else None


SYMBOLS = Path(__file__).with_name("torch_symbols.csv")
"""The table that ``scripts/torch_symbols.py`` writes."""


@cache
def torch_symbols() -> tuple[Mapping[str, str], ...]:
    """Which torch exports which symbols: the rows of the table, one a symbol."""
    import csv  # noqa: PLC0415  (few commands read it)

    with SYMBOLS.open(newline="") as file:
        return tuple(csv.DictReader(file))


def about_torch_symbols() -> Mapping[str, Any]:
    """Which torches that table was made of, and what of them no symbol tells."""
    return table("torch_symbols")


def torch_symbol_patterns() -> tuple[Mapping[str, Any], ...]:
    """The patterns of symbols that one line of a log shows, each with the torches that export such a symbol."""
    return tuple(table("torch_symbol_patterns")["symbol"])


class Builder(msgspec.Struct, frozen=True):
    """The system that made a wheel: it certainly runs with the GNU C library ``certain``, and never without ``needs``."""

    system: str
    certain: Version
    needs: Version


@cache
def builder_of(source: str, version: str) -> Builder:
    """Who built a wheel of a collection whose platform tag says nothing of its C library, as far as it is known."""
    row = next(
        row
        for row in table("wheel_builders")["builder"]
        if row["source"] in {source, ""} and (not row["before"] or version_key(version) < version_key(row["before"]))
    )
    return Builder(row["system"], Version(row["certain"]), Version(row["needs"]))


@cache
def is_preview(torch_minor: str, version: str) -> bool:
    """Whether an official wheel was built against a development version of the torch that it names."""
    return any(
        row["torch"] == torch_minor and version_key(row["first"]) <= version_key(version) <= version_key(row["last"])
        for row in table("wheel_builders")["preview"]
    )
