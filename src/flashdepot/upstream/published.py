"""From a published sdist to a tree in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.model.upstream import UpstreamId
from flashdepot.upstream.layout import is_kept
from flashdepot.upstream.tree import Identified, SourceTree

if TYPE_CHECKING:
    from flashdepot.events import Download
    from flashdepot.model.selection import Feature, Unit
    from flashdepot.upstream.layout import Layout


class Sdist(msgspec.Struct, frozen=True):
    """One published sdist: its file, and the units and features that are in it. ``size`` is in bytes.

    ``tree`` is the :func:`~flashdepot.system.folders.tree_digest` of what flashdepot takes of it.
    """

    project: str
    version: str
    filename: str
    sha256: str
    size: int
    tree: str
    units: frozenset[Unit]
    features: frozenset[Feature]

    @property
    def identified(self) -> Identified:
        """What a build needs to know of it before it is fetched."""
        return Identified(UpstreamId(self.version, self.sha256), self.units, self.features)

    @property
    def folder(self) -> str:
        """The name of the folder in the cache that it is unpacked to."""
        return f"{self.version}-{self.sha256[:12]}"


def obtain_sdist(layout: Layout, sdist: Sdist, cache: Path, on_progress: Download | None = None) -> SourceTree:
    """Fetch and unpack an sdist, each if it is not there whole: every byte is compared with what is pinned.

    The file stays beside the tree, so that a tree that was damaged is made again without the network.

    :raises IntegrityError: when the file or what is in it is not what the pinned data says.
    :raises NetworkError: when it must be fetched and cannot be.
    """
    from flashdepot.system.archive import unpack  # noqa: PLC0415  (a version is known by its data: a depot hit unpacks nothing)
    from flashdepot.system.folders import make_whole  # noqa: PLC0415
    from flashdepot.system.net import fetch  # noqa: PLC0415
    from flashdepot.system.use import keep  # noqa: PLC0415

    def fill(folder: Path) -> None:
        place = cache / sdist.filename
        archive = fetch(sdist.project, sdist.filename, sdist.sha256, place, on_progress=on_progress)
        while not keep(archive):  # gc removed it just now
            archive = fetch(sdist.project, sdist.filename, sdist.sha256, place, on_progress=on_progress)
        unpack(archive, folder, keep=lambda name: is_kept(layout, name.partition("/")[2]))
        _read(layout, sdist, folder)

    return _read(layout, sdist, make_whole(cache / sdist.folder, fill, sdist.tree))


def _read(layout: Layout, sdist: Sdist, folder: Path) -> SourceTree:
    tree = SourceTree.read(layout, sdist.identified.id, folder / sdist.filename.removesuffix(".tar.gz"))
    if (tree.units, tree.features) != (sdist.units, sdist.features):
        raise IntegrityError(
            f"{sdist.filename} has {len(tree.units)} translation units and {len(tree.features)} features, "
            f"not the {len(sdist.units)} and {len(sdist.features)} that are on record for {sdist.version}.",
            hint="Internal error in flashdepot's data: use another version, and report it.",
        )
    return tree
