"""The depot: one folder that keeps what was compiled, and answers whether something was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from flashdepot.depot.blobs import Blobs
from flashdepot.depot.layout import DepotLayout, mark_used, require_safe
from flashdepot.depot.libraries import Artifacts, Libraries
from flashdepot.errors import FlashdepotError
from flashdepot.events import Events
from flashdepot.files.disk import disk_errors
from flashdepot.files.folders import KnownDigests
from flashdepot.fit.requests import unmet
from flashdepot.model.manifest import LIBRARY, Manifest
from flashdepot.model.request import Request

if TYPE_CHECKING:
    from flashdepot.depot.actions import Actions
    from flashdepot.files.locks import HeldLock

_T = TypeVar("_T")


class NoRemotes:
    """The remotes of a depot that has none; :class:`flashdepot.remotes.Remotes` are those that are set.

    What a remote lacks or does wrong is a miss and a warning, and never an error of the caller.
    """

    def usable(self) -> Iterable[Any]:
        """Each remote that may be asked and has not failed."""
        return ()

    def not_heard(self) -> dict[str, FlashdepotError | None]:
        """The names of those that failed, and why, or that must not be asked: nobody knows what they have."""
        return {}

    def first(self, ask: Callable[[Any], _T | None]) -> _T | None:  # noqa: ARG002
        """The first answer of all remotes, in order; ``ask`` is called with a :class:`flashdepot.remotes.remote.OpenRemote`."""
        return None

    def share(self, depot: Depot, manifest: Manifest, events: Events) -> None:
        """Push a library that was built here, and its compiler runs, to the remotes that are set for that."""


class DepotChoice(msgspec.Struct, frozen=True):
    """What was taken, if anything, and each library that was not fit, with the reasons, nearest miss first."""

    taken: Manifest | None
    rejected: tuple[tuple[Manifest, tuple[str, ...]], ...]


def choose(request: Request, manifests: Iterable[Manifest]) -> DepotChoice:
    """Choose among libraries, given newest first: one with less code wins, and of two alike the newer.

    Newer is better made: by the same sources, it is linked by a newer flashdepot, or dispatches by newer measurements.
    """
    fitting: list[Manifest] = []
    rejected: list[tuple[Manifest, tuple[str, ...]]] = []
    for manifest in manifests:
        if reasons := unmet(request, manifest):
            rejected.append((manifest, reasons))
        else:
            fitting.append(manifest)
    rejected.sort(key=lambda pair: (len(pair[1]), pair[0].recipe_key))
    least = min(fitting, key=lambda manifest: len(manifest.selection.units) * len(manifest.sass), default=None)
    return DepotChoice(least, tuple(rejected))


DAMAGED = "a file of it is damaged or missing"


def _unheard(_problem: str) -> None:
    """Let a problem go unreported: what is damaged is made again all the same."""


class Depot:
    """A content-addressed store of objects and libraries in one folder.

    Opening one touches nothing: a folder that does not exist reads as an empty depot and is made by the first write,
    and one that may not be written can still be read and hit. Every write ends with one rename, so that a kill at any
    moment leaves what was there before or what is there after. Whatever writes in it raises :class:`MissingToolError` when
    the disk is full or may not be written.

    :param on_problem: called with a sentence for everything that is found damaged; the depot works on without it.
    :param remotes: asked for what the depot lacks; none when they are not given.
    :raises IntegrityError: for a depot that others can write into; see :func:`flashdepot.depot.layout.require_safe`.
    """

    def __init__(
        self, root: Path, on_problem: Callable[[str], None] = _unheard, remotes: NoRemotes | None = None
    ) -> None:
        self.root = root
        self.remotes = remotes or NoRemotes()
        self.layout = DepotLayout(root)
        require_safe(self.layout)
        self._on_problem = on_problem
        digests = KnownDigests()
        self.blobs = Blobs(self.layout, on_problem, digests)
        self.artifacts = Artifacts(self.layout, self.blobs, on_problem)
        self.libraries = Libraries(self.layout, self.blobs, digests)

    @cached_property
    def actions(self) -> Actions:
        """What was compiled. A hit asks for none of it, nor for what the other local imports here bring."""
        from flashdepot.depot.actions import Actions  # noqa: PLC0415

        return Actions(self.layout, self.blobs, self._on_problem)

    def find(self, request: Request) -> DepotChoice:
        """The library to take for a request, all of its files right, and why each of the others does not serve."""
        newest_first = sorted(self.artifacts.stored(), key=lambda stored: stored.created, reverse=True)
        candidates = {s.manifest.recipe_key: s.manifest for s in newest_first if s.manifest.kind == LIBRARY}
        damaged: list[tuple[Manifest, tuple[str, ...]]] = []
        while True:
            choice = choose(request, candidates.values())
            if choice.taken is None or self.libraries.intact(choice.taken):
                break
            damaged.append((candidates.pop(choice.taken.recipe_key), (DAMAGED,)))
        if choice.taken:
            mark_used(self.layout.artifact(choice.taken.recipe_key))
        return DepotChoice(choice.taken, (*damaged, *choice.rejected))

    def load_intact(self, recipe_key: str) -> Manifest | None:
        """The manifest of a recipe whose files are all there and right; ``None`` when it must be made, or made again."""
        manifest = self.artifacts.load(recipe_key)
        return manifest if manifest is not None and self.libraries.intact(manifest) else None

    def export(self, manifest: Manifest, destination: Path) -> Path:
        """Copy a library into a folder outside the depot; see :func:`flashdepot.depot.export.export`."""
        from flashdepot.depot.export import export  # noqa: PLC0415

        return export(manifest, self.libraries.source(manifest), destination)

    def lock(self, key: str) -> AbstractContextManager[HeldLock]:
        """See :func:`flashdepot.files.locks.lock_file`."""
        from flashdepot.files.locks import lock_file  # noqa: PLC0415

        self.layout.prepare()
        return lock_file(self.layout.lock(key))

    def try_lock(self, key: str) -> HeldLock | None:
        """See :func:`flashdepot.files.locks.try_lock_file`."""
        from flashdepot.files.locks import try_lock_file  # noqa: PLC0415

        self.layout.prepare()
        return try_lock_file(self.layout.lock(key))

    def workspace(self) -> AbstractContextManager[Path]:
        """See :func:`flashdepot.depot.workspaces.workspace`."""
        from flashdepot.depot.workspaces import workspace  # noqa: PLC0415

        return workspace(self.layout)

    def log_path(self, name: str, intent_key: str) -> Path:
        """Where the output of a compiler run goes; ``logs/`` is there when this returns."""
        self.layout.prepare()
        with disk_errors(self.root):
            self.layout.logs.mkdir(exist_ok=True)
        return self.layout.logs / f"{name}-{intent_key[:12]}.log"


def depot_folder(folder: Path | None = None) -> Path:
    """The folder that was named, or the user's: ``FLASHDEPOT_HOME``, else a folder of the user's cache."""
    named = str(folder) if folder is not None else os.environ.get("FLASHDEPOT_HOME")
    if not named:
        from flashdepot.files.trust import user_cache  # noqa: PLC0415

        named = str(user_cache())
    return Path(os.path.abspath(os.path.expanduser(named)))  # noqa: PTH100, PTH111  (links stay)


def open_depot(
    folder: Path | None = None, on_problem: Callable[[str], None] = _unheard, remotes: NoRemotes | None = None
) -> Depot:
    """The depot in :func:`depot_folder`."""
    return Depot(depot_folder(folder), on_problem, remotes)
