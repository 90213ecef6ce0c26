"""The space that a depot takes, and freeing it, next to running builds if need be."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from flashdepot.depot.actions import read_intent
from flashdepot.depot.layout import (
    USE_RESOLUTION,
    Fingerprint,
    inside,
    is_leftover,
    key_of,
    moment,
    move_if_unchanged,
    real_folders,
    remove,
    require_safe,
)
from flashdepot.depot.store import Depot
from flashdepot.depot.workspaces import WORKSPACE, discard, in_use, lock_of
from flashdepot.errors import IntegrityError
from flashdepot.files.disk import disk_errors, hidden_sibling
from flashdepot.files.locks import lock_file


class Usage(msgspec.Struct, frozen=True):
    """Things of one kind: how many there are, their bytes on disk, and when one was last used or written."""

    kind: str
    count: int
    bytes: int
    last_used: datetime | None


def usage(depot: Depot) -> tuple[Usage, ...]:
    """Everything in a depot's folder, each file counted once however many names it has."""
    layout, root = depot.layout, depot.root
    needed = {file.digest for manifest in depot.artifacts.manifests() for file in manifest.files}
    blobs = list(depot.blobs.files())
    seen: set[tuple[int, int]] = set()

    def of(kind: str, things: Iterable[Path], uncounted: Iterable[Path] = ()) -> Usage:
        counted = [path for path in things if os.path.lexists(path)]
        found = [status for path in (*counted, *uncounted) for status in _files(path)]
        new = {(status.st_dev, status.st_ino): status.st_size for status in found}
        size = sum(new[key] for key in new.keys() - seen)
        seen.update(new)
        newest = max((status.st_mtime for status in found), default=None)
        used = None if newest is None else moment(newest)
        return Usage(kind, len(counted), size, used)

    of_libraries = [blob for blob in blobs if key_of(blob) in needed]
    objects = [blob for blob in blobs if key_of(blob) not in needed]
    records = (*depot.actions.files(), *depot.actions.intent_files())
    return (
        of("libraries", depot.artifacts.files(), [*of_libraries, root / "libraries"]),
        of("objects", objects, records),
        of("compilers", real_folders(layout.toolchains), [layout.toolchains]),
        of("sources", real_folders(layout.upstreams), [layout.upstreams]),
        of("downloads", inside(layout.downloads)),
        of("logs", inside(layout.logs)),
        of("the rest", (), [root]),
    )


def _files(path: Path) -> Iterator[os.stat_result]:
    """Every regular file at or below a path; what goes away meanwhile is skipped, and no link is followed."""
    try:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            yield status
        elif stat.S_ISDIR(status.st_mode):
            for inner in list(path.iterdir()):
                yield from _files(inner)
    except OSError:
        return


OLDER_THAN = timedelta(days=30)
"""How long what no manifest needs is kept after its last use."""

GRACE = 3600.0
"""Seconds for which nothing is removed, because a process may be about to refer to it."""

_LEFTOVER_LIFETIME = 86400.0
_FETCHED = ("toolchain", "upstream", "download")
"""The kinds of what was fetched, each in a folder of that name in the plural."""

_DIGEST = re.compile(rb'"([0-9a-f]{64})"')


class Removal(msgspec.Struct, frozen=True):
    """One thing to remove: what kind of thing, why, the bytes that it frees, and what it looked like."""

    path: Path
    kind: str
    reason: str
    bytes: int
    seen: Fingerprint


def plan(
    depot: Depot, older_than: timedelta = OLDER_THAN, *, grace: float = GRACE, forget: frozenset[str] = frozenset()
) -> tuple[Removal, ...]:
    """List what can go: all that no manifest, no action used within ``older_than``, and no running build needs.

    What refers to something comes before what it refers to.

    :param grace: seconds for which nothing goes, since a process that is not a build may be about to refer to it.
    :param forget: recipe keys of libraries that go too.
    """
    return tuple(_Planner(depot, older_than, grace, forget).removals())


def run(depot: Depot, planned: tuple[Removal, ...]) -> tuple[Removal, ...]:
    """Execute a plan, except where something came into use since; :returns: the part of the plan that was executed."""
    require_safe(depot.layout)  # it may have been a while since it was opened, and what is removed is gone
    with disk_errors(depot.root):
        return tuple(removal for removal in planned if _remove(depot, removal))


class _Planner:
    def __init__(self, depot: Depot, older_than: timedelta, grace: float, forget: frozenset[str]) -> None:
        self._forget = forget
        self._unused = "not used lately" if older_than else "can be made again"
        self._depot = depot
        self._layout = depot.layout
        self._now = time.time()
        folders = real_folders(depot.layout.temporary)
        self._workspaces = {path: float(name[1]) for path in folders if (name := WORKSPACE.fullmatch(path.name))}
        builds = [began - USE_RESOLUTION for folder, began in self._workspaces.items() if in_use(folder)]
        self._in_reach = min([self._now - grace, *builds])
        self._recent = min(self._now - older_than.total_seconds(), self._in_reach)
        self._leftover = self._now - _LEFTOVER_LIFETIME

    def removals(self) -> Iterator[Removal]:
        # Records are read in full before anything is judged by them.
        needed: set[str] = set()
        for path in self._depot.artifacts.files():
            if key_of(path) in self._forget:
                yield from self._older([path], time.time(), "manifest", "of a library to be removed")
            else:
                needed |= _digests_in(path)
        gone = []
        for path in self._depot.actions.files():
            if removals := list(self._older([path], self._recent, "action", self._unused)):
                gone.append(path)
                yield from removals
            else:
                needed |= _digests_in(path)
        for path in self._depot.actions.intent_files():
            if all(action in gone or not action.exists() for action in _actions_of(self._depot, path)):
                yield from self._older([path], self._recent, "intent", "for no action")
        for path in inside(self._layout.root / "libraries"):
            if not is_leftover(path) and not _has_manifest(self._depot, path, but=self._forget):
                yield from self._older([path], time.time(), "library", "without a manifest")
        unneeded = (blob for blob in self._depot.blobs.files() if key_of(blob) not in needed)
        yield from self._older(unneeded, self._in_reach, "blob", "not needed")
        yield from self._older(inside(self._layout.quarantine), time.time(), "quarantine", "damaged")
        yield from self._temporary()
        yield from self._older(inside(self._layout.logs), self._recent, "log", "old")
        for kind in _FETCHED:
            for path in inside(self._layout.root / f"{kind}s"):
                if not is_leftover(path):  # an archive of a source and the answers of a compiler are files
                    what = "file" if kind != "download" and not path.is_dir() else kind
                    yield from self._older([path], self._recent, what, self._unused)
        locks = (path for path in inside(self._layout.root / "locks") if path.suffix == ".lock")
        yield from self._older(locks, self._leftover, "lock", "not held")

    def _temporary(self) -> Iterator[Removal]:
        killed = "left by a killed process"
        unused = (folder for folder in self._workspaces if not in_use(folder))
        yield from self._older(unused, time.time(), "workspace", killed)
        there = inside(self._layout.temporary)
        locks = [path for path in there if WORKSPACE.fullmatch(path.stem) and path.suffix == ".lock"]
        # A kill came between a folder and its lock.
        yield from self._older(
            (p for p in locks if not p.with_suffix("").exists()), time.time(), "lock", "of a workspace that is gone"
        )
        others = (path for path in there if path not in {*self._workspaces, *locks})
        yield from self._older(others, self._in_reach, "temporary", killed)
        root = self._layout.root
        places = [root, *(root / name for name in ("artifacts", "libraries", "toolchains", "upstreams"))]
        places += [shard for folder in self._layout.sharded for shard in real_folders(folder)]
        hidden = (path for place in places for path in inside(place) if is_leftover(path))
        yield from self._older(hidden, self._leftover, "temporary", killed)

    def _older(self, paths: Iterable[Path], limit: float, kind: str, reason: str) -> Iterator[Removal]:
        """Plan to remove each path that was last changed before ``limit``."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                seen = Fingerprint.of(path)
                if seen.mtime_ns / 1e9 <= limit:
                    yield Removal(path, kind, reason, _freed(path), seen)


def _remove(depot: Depot, removal: Removal) -> bool:
    path = removal.path
    if removal.kind == "workspace":
        return discard(lock_of(path), path)
    if removal.kind == "lock" and not path.is_symlink():
        return discard(path)
    if removal.kind == "intent":
        with lock_file(depot.layout.lock("intents")):  # as anyone who adds an action does
            if any(action.exists() for action in _actions_of(depot, path)):
                return False
            path.unlink(missing_ok=True)
        return True
    if removal.kind == "library" and _has_manifest(depot, path):
        return False
    aside = hidden_sibling(path)
    try:
        moved = move_if_unchanged(path, removal.seen, aside)
    except PermissionError:
        if os.name != "nt" or not path.is_dir():
            raise
        moved = False  # somebody has a file of it open
    if moved:
        remove(aside)
    return moved


def _digests_in(path: Path) -> set[str]:
    """Every SHA-256 in a record. Not parsed, so that a record of another version keeps what it needs as well."""
    try:
        return {digest.decode() for digest in _DIGEST.findall(path.read_bytes())}
    except FileNotFoundError:
        return set()


def _actions_of(depot: Depot, intent: Path) -> list[Path]:
    try:
        return [depot.layout.action(key) for key in read_intent(intent)]
    except (FileNotFoundError, IntegrityError, ValueError):
        return []


def _has_manifest(depot: Depot, library: Path, but: frozenset[str] = frozenset()) -> bool:
    return any(key_of(m)[:16] == key_of(library) for m in depot.artifacts.files() if key_of(m) not in but)


def _freed(path: Path) -> int:
    """Bytes that removing a path frees. A file in a library that is a link to a blob frees nothing by itself."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(status.st_size for status in _files(path) if status.st_nlink == 1)
