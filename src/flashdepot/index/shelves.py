"""Which wheels an installer is offered at which address of an index. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from packaging.version import Version

from flashdepot.facts.gpus import known_architectures
from flashdepot.model.index_record import IndexedWheel

EVERYBODY = "simple"
"""The address of the shelf for everybody, and what indexes call theirs."""


class Offer(msgspec.Struct, frozen=True):
    """A wheel on a shelf. ``instead`` is the name of the one that is taken in its place, unless somebody pins it."""

    wheel: IndexedWheel
    instead: str = ""


class Shelf(msgspec.Struct, frozen=True):
    """What one address offers: of each upstream version and system one plain wheel, and others as yanked (PEP 592).

    An installer takes the greatest of versions that differ in their local part alone, whatever fits the GPU. So nothing
    is offered that it would prefer to the right one.
    """

    name: str
    offers: tuple[Offer, ...]

    @property
    def taken(self) -> tuple[IndexedWheel, ...]:
        """The plain wheels that are taken by those who pin none."""
        return tuple(main_wheels(offer.wheel for offer in self.offers).values())


def shelves(wheels: Iterable[IndexedWheel]) -> tuple[Shelf, ...]:
    """The shelf for everybody, then one for each set of words of the local version, by name."""
    every = sorted(wheels, key=lambda wheel: wheel.filename)
    plain = [wheel for wheel in every if not wheel.label]
    named: dict[str, list[IndexedWheel]] = {}
    for wheel in plain:
        named.setdefault(shelf_name(wheel), []).append(wheel)
    return (
        Shelf(EVERYBODY, _offers(every)),
        *(Shelf(name, _offers(named[name])) for name in sorted(named)),
    )


def shelf_name(wheel: IndexedWheel) -> str:
    """The shelf of wheels with the same words in their local version: ``cu130-full-sm90``."""
    return (Version(wheel.version).local or "").replace(".", "-")


def main_wheels(wheels: Iterable[IndexedWheel]) -> dict[tuple[str, str], IndexedWheel]:
    """The plain wheel for everybody of each upstream version and system: what serves the most GPUs, then does the most."""
    best: dict[tuple[str, str], IndexedWheel] = {}
    for wheel in sorted((w for w in wheels if not w.label), key=_reach):
        best[_place(wheel)] = wheel
    return best


def _offers(wheels: Sequence[IndexedWheel]) -> tuple[Offer, ...]:
    main = main_wheels(wheels)
    open_to_all = {wheel.filename for place in main for wheel in _mains_in_time(place, wheels)}

    def instead(wheel: IndexedWheel) -> str:
        chosen = main.get(_place(wheel))
        if chosen is None or (wheel.version == chosen.version if wheel.label else wheel.filename in open_to_all):
            return ""
        return chosen.filename

    return tuple(Offer(wheel, instead(wheel)) for wheel in wheels)


def _mains_in_time(place: tuple[str, str], wheels: Sequence[IndexedWheel]) -> Iterator[IndexedWheel]:
    """The main wheel of a place, and those that were it before: who asks for what there was then is to find them.

    One that installers would prefer to its successor is left out, for they take the greatest of all that they see.
    """
    here = [wheel for wheel in wheels if not wheel.label and _place(wheel) == place]
    last: IndexedWheel | None = None
    for moment in sorted({wheel.uploaded for wheel in here}, reverse=True):
        (main,) = main_wheels(wheel for wheel in here if wheel.uploaded <= moment).values()
        if last is None or _preference(main) < _preference(last):
            yield main
            last = main


def _preference(wheel: IndexedWheel) -> tuple[Version, str]:
    """What installers order wheels of one tag by: the version, then the build tag."""
    return Version(wheel.version), wheel.filename.split("-")[2]


def _place(wheel: IndexedWheel) -> tuple[str, str]:
    return Version(wheel.version).public, str(wheel.platform)


def _reach(wheel: IndexedWheel) -> tuple[object, ...]:
    """To sort by: GPUs served, what it can do, the older CUDA, which more drivers serve, then the later upload."""
    gpus = sum(any(code.runs_on(known.architecture) for code in wheel.sass) for known in known_architectures())
    older = tuple(-number for number in (*wheel.cuda.numbers, 0)[:2])
    return gpus, len(wheel.units), len(wheel.features), older, wheel.uploaded, wheel.filename
