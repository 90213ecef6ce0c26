"""What lies in a depot, by what it is, with its size on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from flashdepot.depot.layout import inside
from flashdepot.depot.store import Depot
from flashdepot.system.own_names import key_of


class Usage(msgspec.Struct, frozen=True):
    """Things of one kind: how many there are, their bytes on disk, and when one was last used or written."""

    kind: str
    count: int
    bytes: int
    last_used: datetime | None


def usage(depot: Depot) -> tuple[Usage, ...]:
    """Everything in a depot's folder, each file counted once however many names it has."""
    layout, root = depot.layout, depot.root
    needed = {file.digest for manifest in depot.manifests() for file in manifest.files}
    blobs = list(depot.blobs.files())
    seen: set[tuple[int, int]] = set()

    def of(kind: str, things: Iterable[Path], beside: Iterable[Path] = ()) -> Usage:
        counted = [path for path in things if os.path.lexists(path)]
        found = [status for path in (*counted, *beside) for status in _files(path)]
        size = 0
        for status in found:
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                size += status.st_size
        newest = max((status.st_mtime for status in found), default=None)
        used = None if newest is None else datetime.fromtimestamp(newest, timezone.utc)
        return Usage(kind, len(counted), size, used)

    of_libraries = [blob for blob in blobs if key_of(blob) in needed]
    objects = [blob for blob in blobs if key_of(blob) not in needed]
    records = (*depot.actions.files(), *depot.actions.intent_files())
    return (
        of("libraries", depot.artifacts.files(), [*of_libraries, root / "libraries"]),
        of("objects", objects, records),
        of("compilers", _folders(layout.toolchains), [layout.toolchains]),
        of("sources", _folders(layout.upstreams), [layout.upstreams]),
        of("downloads", inside(layout.downloads)),
        of("logs", inside(layout.logs)),
        of("the rest", (), [root]),
    )


def _files(path: Path) -> Iterator[os.stat_result]:
    """Every regular file at or below a path; what goes away meanwhile is passed over, and no link is followed."""
    try:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            yield status
        elif stat.S_ISDIR(status.st_mode):
            for inner in list(path.iterdir()):
                yield from _files(inner)
    except OSError:
        return


def _folders(folder: Path) -> list[Path]:
    return [path for path in inside(folder) if path.is_dir()]
