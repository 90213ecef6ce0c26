"""Many wheels at once: those that are alike are judged together, and none is made into an object before it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, overload

from flashdepot.model.published_wheel import PublishedWheel


class Lot(NamedTuple):
    """Wheels that differ in their Python and in where they lie, and in nothing else that their names tell.

    ``like`` has what they have in common, and nothing in the other fields. ``rows`` says which of ``wheels`` they are;
    ``pythons`` are the Python tag and the ABI tag of each of ``wheels``.
    """

    like: PublishedWheel
    rows: Sequence[int]
    pythons: Sequence[tuple[str, str]]
    wheels: Sequence[PublishedWheel]


def alike(wheel: PublishedWheel) -> PublishedWheel:
    """What a wheel has in common with the others of its lot."""
    return wheel._replace(python="", abi="", url="", size=0, sha256="")


def lots_of(wheels: Sequence[PublishedWheel]) -> Iterable[Lot]:
    """All wheels of a sequence in lots."""
    if isinstance(wheels, LotsOfWheels):
        return wheels.lots()
    rows: dict[PublishedWheel, list[int]] = {}
    for row, wheel in enumerate(wheels):
        rows.setdefault(alike(wheel), []).append(row)
    pythons = [(wheel.python, wheel.abi) for wheel in wheels]
    return [Lot(like, members, pythons, wheels) for like, members in rows.items()]


class LotsOfWheels(Sequence[PublishedWheel]):
    """Wheels that come in lots: several sequences, one after the other, where nothing more is known of them."""

    def __init__(self, parts: Iterable[Sequence[PublishedWheel]] = ()) -> None:
        self._parts = tuple(parts)

    def lots(self) -> Iterable[Lot]:
        """All of them in lots."""
        return chain.from_iterable(map(lots_of, self._parts))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[PublishedWheel]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> PublishedWheel: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[PublishedWheel]: ...

    def __getitem__(self, index: int | slice) -> PublishedWheel | Sequence[PublishedWheel]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
