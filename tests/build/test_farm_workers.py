"""Which worker of a farm an action goes to."""

from __future__ import annotations

from flashdepot.build.farm.cluster import FarmWorker
from flashdepot.build.farm.executor import FreeWorker, choose_worker, free_workers

GB = 10**9
SMALL, LARGE = FarmWorker("tcp://a", "a", 2, 8 * GB), FarmWorker("tcp://b", "b", 4, 24 * GB)


def spread(count: int, size: int, workers: tuple[FarmWorker, ...], *, ahead: int = 0) -> list[str]:
    """The workers that so many actions of one size go to, one after the other; those that wait are left out."""
    given: list[tuple[str, int]] = []
    for _ in range(count):
        room = choose_worker(free_workers(workers, given), size, alone=False, ahead=ahead)
        if room is not None:
            given.append((room.worker.address, size))
    return [address.removeprefix("tcp://") for address, _ in given]


def test_every_slot_is_filled_and_none_twice() -> None:
    workers = tuple(FarmWorker(f"tcp://{n}", str(n), 4, 24 * GB) for n in range(8))
    taken = spread(40, 4 * GB, workers)
    assert sorted(taken) == sorted(str(n) for n in range(8) for _ in range(4))
    assert set(taken[:8]) == set(map(str, range(8))), "one for each before any gets two"


def test_memory_is_kept_to_and_a_small_worker_gets_what_fits() -> None:
    assert spread(9, 5 * GB, (SMALL, LARGE)) == ["b", "b", "b", "a", "b"]
    assert spread(3, 9 * GB, (SMALL, LARGE)) == ["b", "b"]
    assert choose_worker(free_workers((SMALL,), []), 9 * GB, alone=False, ahead=1) is None


def test_one_more_waits_on_a_worker_when_asked() -> None:
    assert spread(20, 1 * GB, (SMALL, LARGE), ahead=1).count("a") == SMALL.slots + 1
    assert spread(20, 1 * GB, (SMALL, LARGE), ahead=1).count("b") == LARGE.slots + 1


def test_what_is_to_run_alone_goes_to_the_one_that_has_room_and_waits_there() -> None:
    busy = [(SMALL.address, GB), *[(LARGE.address, GB)] * 4]
    assert choose_worker(free_workers((SMALL, LARGE), busy), 24 * GB, alone=True, ahead=0) == FreeWorker(
        LARGE, 0, 20 * GB
    )
    assert choose_worker(free_workers((SMALL,), busy), 24 * GB, alone=True, ahead=0) is None


def test_what_a_dead_worker_had_counts_against_nobody() -> None:
    assert free_workers((SMALL,), [("tcp://dead", GB), ("", GB)]) == [FreeWorker(SMALL, 2, 8 * GB)]
