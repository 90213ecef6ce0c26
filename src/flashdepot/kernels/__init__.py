"""Families of kernels: what is compiled, from which source, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import UsageError, not_one_of
from flashdepot.kernels.fa2 import Fa2
from flashdepot.kernels.fa3 import Fa3
from flashdepot.kernels.fa4 import Fa4
from flashdepot.model.selection import DEFAULT_FAMILY, Selection

if TYPE_CHECKING:
    from flashdepot.events import OnFile
    from flashdepot.kernels.family import Family
    from flashdepot.model.target import Architecture, Platform
    from flashdepot.upstream import SourceTree

FAMILIES: tuple[Family, ...] = (Fa2(), Fa3(), Fa4())
"""Every family there is. One joins by its folder and its entry here."""

ALL = "all"
"""The word for every usual family."""


def family_of(name: str) -> Family:
    """The family of that name; :raises UsageError: when there is none."""
    for family in FAMILIES:
        if family.name == name:
            return family
    known = [family.name for family in FAMILIES]
    raise not_one_of(name, "a family of kernels", known, hint=f"Name one, or all of them: --families {ALL}")


def parse_families(text: str) -> frozenset[str]:
    """Read ``fa4``, ``fa2,fa4``, ``all`` or ``all,fa3``; :raises UsageError: for an unknown or empty name."""
    words = [word for word in re.split(r"[,\s]+", text.strip().lower()) if word]
    if not words:
        raise UsageError("The list of families is empty.", hint=f"Name some: --families {DEFAULT_FAMILY}")
    usual = (family.name for family in FAMILIES if family.is_usual and ALL in words)
    return frozenset((*usual, *(family_of(word).name for word in words if word != ALL)))


def default_family() -> Family:
    """The family that is meant where none is named."""
    return family_of(DEFAULT_FAMILY)


def tested_families(gpus: Iterable[Architecture]) -> list[Family]:
    """The usual families that were tested on some of the GPUs, and have kernels for those."""
    usual = [family for family in FAMILIES if family.is_usual]
    return [f for f in usual if any(f.is_tested(gpu) and not f.lacks(gpu) for gpu in gpus)]


def untested_code(selection: Selection, sass: Iterable[Architecture]) -> dict[str, tuple[Architecture, ...]]:
    """By family, the GPUs among those that a library has machine code for, on which its kernels were not tested."""
    found = {}
    for family in map(family_of, selection.families):
        units = [unit for unit in selection.units if unit.family == family.name]
        found[family.name] = tuple(
            gpu for gpu in sass if not family.is_tested(gpu) and any(family.runs(unit, gpu) for unit in units)
        )
    return {name: gpus for name, gpus in found.items() if gpus}


def obtain_sources(sources: Mapping[str, str], cache: Path, on_file: OnFile = lambda _: None) -> dict[str, SourceTree]:
    """The trees of some families, complete and on disk.

    :param sources: what names the source of each family, by the family's name.
    :param cache: the depot's ``upstreams`` folder.
    :param on_file: called with what each is, before it is fetched.
    :raises FlashdepotError: as :meth:`Sources.obtain` does.
    """

    def obtain(name: str, spec: str) -> SourceTree:
        family = family_of(name)
        return family.sources.obtain(spec, cache, on_progress=on_file(f"the source of {family.title}"))

    return {name: obtain(name, spec) for name, spec in sources.items()}


def provide(families: Iterable[str], platform: Platform, folder: Path, on_file: OnFile) -> dict[str, Path]:
    """What the actions of some families name that is not the CUDA toolchain; see :meth:`Family.provide`."""
    found: dict[str, Path] = {}
    for name in families:
        found |= family_of(name).provide(platform, folder, on_file)
    return found


def oldest_gpu() -> Architecture:
    """The oldest GPU that kernels of any family run on."""
    return min(family.oldest_gpu for family in FAMILIES)
