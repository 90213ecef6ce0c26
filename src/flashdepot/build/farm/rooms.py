"""Which worker an action goes to. Pure: no clock, no cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from flashdepot.build.farm.cluster import FarmWorker


class Room(msgspec.Struct, frozen=True):
    """What a worker has left: slots, fewer than none when actions wait on it, and bytes of memory."""

    worker: FarmWorker
    slots: int
    memory: int

    def less(self, memory: int) -> Room:
        """The same with one action more."""
        return replace(self, slots=self.slots - 1, memory=self.memory - memory)


def rooms_of(workers: Iterable[FarmWorker], given: Sequence[tuple[str, int]]) -> list[Room]:
    """What each worker has left.

    :param given: the address that each action was given to, and the memory that it is expected to take.
    """
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for address, memory in given:
        counts[address] += 1
        sums[address] += memory
    return [Room(w, w.slots - counts[w.address], w.memory - sums[w.address]) for w in workers]


def choose_room(rooms: Sequence[Room], memory: int, *, alone: bool, ahead: int) -> Room | None:
    """The worker with most room for an action, ``None`` when it has to wait here.

    :param alone: it is to have a worker for itself, and waits there until that is free.
    :param ahead: how many actions more than a worker runs may wait on it.
    """
    if alone:
        able = [room for room in rooms if room.worker.memory >= memory]
        return max(able, key=_most, default=None)
    able = [room for room in rooms if room.slots + ahead > 0 and _has_memory(room, memory)]
    return max(able, key=_most, default=None)


def _has_memory(room: Room, memory: int) -> bool:
    """Whether it fits beside the others; what waits for a slot gets the memory of the one before it."""
    return room.memory >= memory if room.slots > 0 else room.worker.memory >= memory and room.memory > -memory


def _most(room: Room) -> tuple[int, int]:
    return room.slots, room.memory
