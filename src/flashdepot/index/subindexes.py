"""Which wheel of an index serves whom: by the address that an installer asks, and by a person's GPU. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from packaging.version import Version

from flashdepot.facts.gpus import KnownArchitecture, known_architectures
from flashdepot.model.index_record import IndexedWheel

EVERYBODY = "simple"
"""The address of the subindex for everybody, and what indexes call theirs."""


class Offer(msgspec.Struct, frozen=True):
    """A wheel of a subindex. ``instead`` is the name of the one that is taken in its place, unless somebody pins it."""

    wheel: IndexedWheel
    instead: str = ""


class Subindex(msgspec.Struct, frozen=True):
    """What one address offers: of each upstream version and system one plain wheel, and others as yanked (PEP 592).

    An installer takes the greatest of versions that differ only in their local part, whatever fits the GPU. So nothing
    is offered that it would prefer to the right one.
    """

    name: str
    offers: tuple[Offer, ...]

    @property
    def taken(self) -> tuple[IndexedWheel, ...]:
        """The plain wheels that are taken by those who pin none."""
        return tuple(main_wheels(offer.wheel for offer in self.offers).values())


def subindexes(wheels: Iterable[IndexedWheel]) -> tuple[Subindex, ...]:
    """The subindex for everybody, then one for each set of words of the local version, by name."""
    every = sorted(wheels, key=lambda wheel: wheel.filename)
    named: dict[str, list[IndexedWheel]] = {}
    for wheel in every:
        named.setdefault(subindex_name(wheel), []).append(wheel)
    return (Subindex(EVERYBODY, _offers(every)), *(Subindex(name, _offers(named[name])) for name in sorted(named)))


def subindex_name(wheel: IndexedWheel) -> str:
    """The subindex of wheels with the same words in their local version: ``cu130-full-sm90``."""
    return (Version(wheel.version).local or "").replace(".", "-")


_Place = tuple[str, str, str]
"""Distribution, upstream version and system."""


def main_wheels(wheels: Iterable[IndexedWheel]) -> dict[_Place, IndexedWheel]:
    """The plain wheel for everybody of each place: what serves the most GPUs, then does the most."""
    best: dict[_Place, IndexedWheel] = {}
    for wheel in sorted(wheels, key=_reach):
        best[_place(wheel)] = wheel
    return best


def _offers(wheels: Sequence[IndexedWheel]) -> tuple[Offer, ...]:
    main = main_wheels(wheels)
    open_to_all = {wheel.filename for place in main for wheel in _mains_in_time(place, wheels)}

    def instead(wheel: IndexedWheel) -> str:
        return "" if wheel.filename in open_to_all else main[_place(wheel)].filename

    return tuple(Offer(wheel, instead(wheel)) for wheel in wheels)


def _mains_in_time(place: _Place, wheels: Sequence[IndexedWheel]) -> Iterator[IndexedWheel]:
    """The main wheel of a place, and those that were it before: who asks for what there was then is to find them.

    One that installers would prefer to its successor is left out, for they take the greatest of all that they see.
    """
    here = [wheel for wheel in wheels if _place(wheel) == place]
    last: IndexedWheel | None = None
    for moment in sorted({wheel.uploaded for wheel in here}, reverse=True):
        (main,) = main_wheels(wheel for wheel in here if wheel.uploaded <= moment).values()
        if last is None or _preference(main) < _preference(last):
            yield main
            last = main


def _preference(wheel: IndexedWheel) -> tuple[Version, str]:
    return Version(wheel.version), wheel.filename.split("-")[2]


def _place(wheel: IndexedWheel) -> _Place:
    return wheel.distribution, Version(wheel.version).public, str(wheel.platform)


def _reach(wheel: IndexedWheel) -> tuple[object, ...]:
    """To sort by: GPUs served, what it can do, the older CUDA, which more drivers serve, then the later upload."""
    gpus = sum(any(code.runs_on(known.architecture) for code in wheel.sass) for known in known_architectures())
    older = tuple(-number for number in (*wheel.cuda.numbers, 0)[:2])
    return gpus, len(wheel.units), len(wheel.features), older, wheel.uploaded, wheel.filename


_CONTENTS = {"full": "everything", "training": "training", "inference": "inference", "quick": "a small one to try"}


def wheels_for(gpu: KnownArchitecture, wheels: Iterable[IndexedWheel]) -> list[IndexedWheel]:
    """The wheels for a GPU: for each system, driver and set of kernels the newest version, in the smallest file.

    Linux on x86-64 comes first, then what has the most kernels, then the newest CUDA.
    """
    on_a_module = any(name in gpu.gpus for name in ("Jetson", "GB10"))
    serving = [
        wheel
        for wheel in sorted(wheels, key=lambda wheel: (wheel.uploaded, wheel.filename), reverse=True)
        if any(code.runs_on(gpu.architecture) for code in wheel.sass)
        and (wheel.platform.machine == "aarch64" or not on_a_module)
    ]
    serving.sort(key=lambda wheel: wheel.size)
    serving.sort(key=lambda wheel: (Version(Version(wheel.version).public), wheel.cuda), reverse=True)
    best: dict[object, IndexedWheel] = {}
    for wheel in serving:
        best.setdefault((wheel.platform, wheel.driver_floor.major, contents_of(wheel)), wheel)
    by_kernels = sorted(best.values(), key=lambda wheel: (len(wheel.units), wheel.driver_floor.major), reverse=True)
    return sorted(by_kernels, key=lambda wheel: (str(wheel.platform) != "linux-x86_64", str(wheel.platform)))


def contents_of(wheel: IndexedWheel) -> str:
    """The words of a version that name families and kernels: ``inference``, ``fa2.fa4.full``."""
    words = (Version(wheel.version).local or "").split(".")
    first = next((n for n, word in enumerate(words) if re.fullmatch(r"cu\d{3,}", word)), -1) + 1
    return ".".join(word for word in words[first:] if not re.fullmatch(r"sm\d+[af]?", word))


def contents_label(words: str) -> str:
    """Those words for people."""
    first, *others = words.split(".")
    return " ".join([_CONTENTS.get(first, first), *(f"({', '.join(others)})" for _ in others[:1])])
