"""The digests of the files that compilers read, each read once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from flashdepot.build.names import PlaceNames
from flashdepot.system.files import sha256_file

_CLOCK_TICK = 0.05
"""Seconds within which two changes of a file may carry the same time."""


class Moment(NamedTuple):
    """A moment by the machine's clock, which somebody may set, and by one that only goes forward; in seconds."""

    clock: float
    steady: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(time.time(), time.monotonic())


class _Stamp(NamedTuple):
    """What changes when a file does: its size, its inode, and the times of its last changes in nanoseconds."""

    size: int
    inode: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: str) -> _Stamp | None:
        """Look at a file; ``None`` when it is not there."""
        try:
            status = os.stat(path)  # noqa: PTH116  (hundreds of files for each unit)
        except OSError:
            return None
        return cls(status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def changed(self) -> float:
        """When the file was last changed, by the clock."""
        return max(self.mtime_ns, self.ctime_ns) / 1e9


class _Look(NamedTuple):
    stamp: _Stamp | None
    at: Moment

    @property
    def is_telling(self) -> bool:
        """Whether a change after this look gives another stamp, which one within the same tick may not."""
        return self.stamp is None or abs(self.at.clock - self.stamp.changed) > _CLOCK_TICK


class InputDigests:
    """SHA-256 by name (see :class:`PlaceNames`), remembered while a build runs."""

    def __init__(self, places: PlaceNames) -> None:
        self._places = places
        self._known: dict[str, tuple[_Stamp | None, str | None]] = {}
        self._looks: dict[str, _Look] = {}

    def look(self, folders: Iterable[Path]) -> None:
        """Look at all files below some folders, so that a change is seen whatever the clock says."""
        for top in folders:
            for folder, subfolders, names in os.walk(top):
                subfolders[:] = [name for name in subfolders if not name.startswith(".")]
                for name in names:
                    path = os.path.join(folder, name)  # noqa: PTH118  (thousands of files)
                    self._looks[path] = _Look(_Stamp.of(path), Moment.now())

    def digest(self, name: str) -> str | None:
        """The digest of a file's bytes when it was first asked for, or ``None`` when it cannot be read."""
        if name not in self._known:
            path = self._places.path(name)
            stamp = _Stamp.of(str(path))
            try:
                self._known[name] = (stamp, sha256_file(path))
            except OSError:
                self._known[name] = (stamp, None)
        return self._known[name][1]

    def closure(self, paths: tuple[str, ...], started: Moment) -> dict[str, str] | None:
        """Names and digests of all that a compiler read.

        :param started: when the compiler started.
        :returns: ``None`` when a file was changed since, so that nobody knows which bytes the compiler saw.
        """
        names = [self._places.name(path) for path in paths]
        # All are looked at, not only up to the first that changed: the next try knows them.
        settled = [self._is_settled(path, started) for path in paths]
        for name, path in zip(names, paths, strict=True):
            look = self._looks[path]
            if name in self._known and (look.stamp is None or self._known[name][0] != look.stamp):
                del self._known[name]  # it was changed after it was read
        if not all(settled):
            return None
        digests = {name: self.digest(name) for name in names}
        if any(_Stamp.of(path) != self._looks[path].stamp for path in paths):
            return None  # changed while it was read
        return {name: digest for name, digest in digests.items() if digest is not None}

    def _is_settled(self, path: str, started: Moment) -> bool:
        """Whether a file is as it was when a compiler started."""
        before = self._looks.get(path)
        now = _Look(_Stamp.of(path), Moment.now())
        if before is None or before.stamp != now.stamp:
            self._looks[path] = now
        if now.stamp is None:
            return False
        if before is not None and before.at.steady <= started.steady and before.is_telling:
            return before.stamp == now.stamp
        return now.stamp.changed < started.clock
