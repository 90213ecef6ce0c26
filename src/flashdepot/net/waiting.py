"""Waiting for places that may never answer: for so long, and no longer.

What waits is a thread that the process does not wait for at its end: no timeout of a library covers a name server that
hangs, or an answer that comes one byte at a time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from flashdepot.errors import NetworkError

_T = TypeVar("_T")
_R = TypeVar("_R")

WORKERS = 10
"""Requests at once. Records and units are small, so that the way to the server counts and not its width."""

_WINDOW = 15.0
_SLOWEST = 32 << 10
"""Bytes a second, over a window, below which a transfer is given up: compiling is faster than that."""

_TICK = 0.1
_LONGEST_TICK = 0.5
"""Seconds that a tick counts at most: a process that was stopped (Ctrl-Z, SIGSTOP, sleep) has waited for nobody meanwhile."""


class Abandoned(Exception):  # noqa: N818  (not an error: it ends a transfer that nobody waits for)
    """Nobody waits for this transfer any more."""


class Pace:
    """How many bytes all transfers of one call have received, and whether that is fast enough."""

    def __init__(self, on_progress: Callable[[int], None] = lambda _received: None) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._done = 0
        self._abandoned = False
        self._window = (0.0, 0)

    def received(self, count: int) -> None:
        """Some bytes have arrived; :raises Abandoned: when nobody waits for them."""
        with self._lock:
            self._done += count
            if self._abandoned:
                raise Abandoned

    def look(self, waited: float) -> bool:
        """Tell how far it is after so many seconds; :returns: whether it is fast enough."""
        self._on_progress(self._done)
        began, had = self._window
        if waited - began < _WINDOW:
            return True
        self._window = (waited, self._done)
        return self._done - had >= _SLOWEST * _WINDOW

    def abandon(self) -> None:
        """Let all transfers end."""
        with self._lock:
            self._abandoned = True


def within(seconds: float, who: str, action: Callable[[], _R]) -> _R:
    """The result of an action; :raises NetworkError: when ``who`` has not answered in time."""
    return each([None], lambda _: action(), who, seconds=seconds)[0]


def each(
    items: Sequence[_T], action: Callable[[_T], _R], who: str, *, seconds: float | None = None, pace: Pace | None = None
) -> list[_R]:
    """The result of an action for each item, in order; several at once.

    :param seconds: how long all of them may take, while this process runs.
    :param pace: what the actions tell of the bytes that they receive, where those may take as long as they come.
    :raises NetworkError: when ``who`` was too slow. Otherwise the first error of an action; the others are not begun.
    """
    waiting: queue.SimpleQueue[tuple[int, _T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, _R | None, BaseException | None]] = queue.SimpleQueue()
    for pair in enumerate(items):
        waiting.put(pair)
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            try:
                number, item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, action(item), None))
            except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
                done.put((number, None, error))

    for _ in range(min(WORKERS, len(items))):
        threading.Thread(target=work, daemon=True, name=f"waiting for {who}").start()
    results: dict[int, _R] = {}
    waited, before = 0.0, time.monotonic()
    try:
        while len(results) < len(items):
            try:
                number, result, error = done.get(timeout=_TICK)
            except queue.Empty:
                pass
            else:
                if error is not None:
                    raise error
                results[number] = cast("_R", result)  # an action that failed has an error
            now = time.monotonic()
            waited, before = waited + min(now - before, _LONGEST_TICK), now
            if seconds is not None and waited > seconds:
                raise NetworkError(f"{who} has not answered within {seconds:g} s")
            if pace is not None and not pace.look(waited):
                raise NetworkError(f"{who} sends less than {_SLOWEST >> 10} kB a second")
    finally:
        stopped.set()
        if pace is not None:
            pace.abandon()
    return [results[number] for number in range(len(items))]
