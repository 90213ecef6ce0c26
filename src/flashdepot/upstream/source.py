"""Source trees, and from what a user names to one: a published version, a folder, or a commit."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from flashdepot.errors import IntegrityError, UsageError, nearest
from flashdepot.facts import read_table
from flashdepot.model.recipe import UpstreamId
from flashdepot.model.selection import Feature, Unit

if TYPE_CHECKING:
    from flashdepot.events import Download
    from flashdepot.files.directory import PlainFiles


class Layout(Protocol):
    """Where the parts of a family's source tree are, and what it can compile."""

    @property
    def project(self) -> str:
        """The name under which the source is published: ``flash-attn``."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The files and folders that flashdepot takes of a tree; the rest is not unpacked. ``.`` is all of it."""

    @property
    def submodules(self) -> tuple[str, ...]:
        """The git submodules that a build needs, by their place."""

    def require_complete(self, files: PlainFiles) -> None:
        """:raises UsageError: for another project's tree; :raises MissingToolError: for one that lacks a submodule."""

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        """Read what a tree can compile."""

    def features(self, files: PlainFiles) -> frozenset[Feature]:
        """Read the features that a tree can leave out."""

    def version(self, files: PlainFiles) -> str:
        """Read the version that a tree gives itself, as :func:`version_in`."""

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """Every file and folder of a tree that a compiler can reach, or that gets into a wheel; not all must be there."""


_OF_AN_SDIST = r"(?m)^Version: (\S+)$"


def version_in(files: PlainFiles, name: str = "PKG-INFO", pattern: str = _OF_AN_SDIST) -> str:
    """The version that a file of a tree says; ``unknown`` where it says none."""
    match = re.search(pattern, files.text(name))
    return match[1] if match else "unknown"


def is_kept(layout: Layout, name: str) -> bool:
    """Whether a file of a tree, by its name with ``/``, is one that flashdepot needs."""
    return any(kept in (".", name) or name.startswith(f"{kept}/") for kept in layout.kept)


class Identified(msgspec.Struct, frozen=True):
    """What is known of an upstream without its tree being unpacked."""

    id: UpstreamId
    units: frozenset[Unit]
    features: frozenset[Feature]


class SourceTree(Identified, frozen=True):
    """A tree on disk, complete. It is read and never written to."""

    root: Path

    @classmethod
    def read(cls, layout: Layout, root: Path, identity: UpstreamId | None = None) -> SourceTree:
        """Read units and features from the files of a tree, and without an ``identity`` version and digest."""
        from flashdepot.files.directory import PlainFiles  # noqa: PLC0415  (a depot hit on a published version reads none)

        files = PlainFiles(root)
        layout.require_complete(files)
        identity = identity or UpstreamId(layout.version(files), source_digest(layout, files), origin="folder")
        return cls(identity, layout.units(files), layout.features(files), root)

    @property
    def files(self) -> PlainFiles:
        """What may be read of it."""
        from flashdepot.files.directory import PlainFiles  # noqa: PLC0415  (as above)

        return PlainFiles(self.root)


def source_digest(layout: Layout, files: PlainFiles) -> str:
    """SHA-256, in hexadecimal, of the names and bytes of every file that gets into a library or a wheel.

    The Python package is part of it: a library knows the one that belongs to its kernels. Times, permissions and the place
    of the tree do not count.
    """
    digest = hashlib.sha256()
    for name in sorted(files.below(*layout.sources(files))):
        digest.update(f"{name}\0{files.digest(name)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def read_sdists(table: Path, units: frozenset[Unit], features: frozenset[Feature]) -> dict[str, Sdist]:
    """The sdists of a table by version, newest last, which all have the same units and features."""
    data = read_table(table)
    project = data["project"]
    return {entry["version"]: Sdist(project, units=units, features=features, **entry) for entry in data["sdist"]}


class Sdist(msgspec.Struct, frozen=True):
    """One published sdist: its file, and the units and features that are in it. ``size`` is in bytes.

    ``tree`` is the :func:`~flashdepot.files.folders.tree_digest` of what flashdepot takes of it.
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
    """Fetch and unpack an sdist, each if it is not there whole.

    The file stays next to the tree, so that a tree that was damaged is made again without the network.
    """
    from flashdepot.files.archive import unpack  # noqa: PLC0415  (a version is known by its data: a depot hit unpacks nothing)
    from flashdepot.files.folders import make_whole, touch  # noqa: PLC0415
    from flashdepot.net.fetch import fetch  # noqa: PLC0415

    def fill(folder: Path) -> None:
        archive = cache / sdist.filename
        touch(archive)
        fetch(sdist.project, sdist.filename, sdist.sha256, archive, on_progress=on_progress)
        unpack(archive, folder, keep=lambda name: is_kept(layout, name.partition("/")[2]))
        _read(layout, sdist, folder)

    return _read(layout, sdist, make_whole(cache / sdist.folder, fill, sdist.tree))


def _read(layout: Layout, sdist: Sdist, folder: Path) -> SourceTree:
    tree = SourceTree.read(layout, folder / sdist.filename.removesuffix(".tar.gz"), sdist.identified.id)
    if (tree.units, tree.features) != (sdist.units, sdist.features):
        raise IntegrityError(
            f"{sdist.filename} has {len(tree.units)} translation units and {len(tree.features)} features, "
            f"not the {len(sdist.units)} and {len(sdist.features)} that are on record for {sdist.version}.",
            hint="Internal error in flashdepot's data: use another version, and report it.",
        )
    return tree


class Sources(msgspec.Struct, frozen=True):
    """Where the source trees of one family come from. ``published`` gives its sdists by version, newest last."""

    layout: Layout
    published: Callable[[], Mapping[str, Sdist]]

    def known_versions(self) -> tuple[str, ...]:
        """The versions that can be named, newest last."""
        return tuple(self.published())

    def default_version(self) -> str:
        """The version that is used when none is named: the newest."""
        return self.known_versions()[-1]

    def find_sdist(self, version: str) -> Sdist:
        """A published version by its exact name; :raises UsageError: for one that is not known; it lists those that are."""
        sdist = self.published().get(version)
        if sdist is None:
            raise UsageError(
                f"'{version}' is neither a known version of {self.layout.project} nor a folder: there are "
                f"{', '.join(self.published())}.",
                hint="Name one of them, a folder, or a commit: --upstream git+https://HOST/PATH@COMMIT",
                meant=(version, nearest(version.rpartition("=")[2].removeprefix("v"), self.published(), like=0.9)),
            )
        return sdist

    def known_trees(self) -> Mapping[str, str]:
        """The digest of every published tree, by the name of its folder in the cache."""
        return {sdist.folder: sdist.tree for sdist in self.published().values()}

    def identify(self, spec: str, cache: Path) -> Identified:
        """What a source is and can compile: :meth:`obtain`, but a published version takes neither network nor disk."""
        if self._is_published(spec):
            return self.find_sdist(spec).identified
        return self.obtain(spec, cache)

    def obtain(self, spec: str, cache: Path, *, on_progress: Download | None = None) -> SourceTree:
        """Return the tree of a source, complete and on disk.

        :param spec: ``2.8.3``, a folder, or ``git+URL@REF``.
        :param cache: the depot's ``upstreams`` folder.
        :raises UsageError: for a version that is not known, or a folder or commit that is not the family's.
        :raises MissingToolError: for a tree without its submodules, no git program, or a disk that cannot be written.
        :raises IntegrityError: for a published file with other bytes.
        :raises NetworkError: for something to be fetched that cannot be.
        """
        if spec.startswith("git+"):
            # 60 ms of imports that a depot hit on a published version does not pay.
            from flashdepot.upstream.git import GitSource, obtain_commit  # noqa: PLC0415

            return obtain_commit(self.layout, GitSource.parse(spec), cache)
        if self._is_published(spec):
            return obtain_sdist(self.layout, self.find_sdist(spec), cache, on_progress)
        root = Path(os.path.abspath(Path(spec).expanduser()))  # noqa: PTH100  (links stay as the user wrote them)
        if "://" in spec:
            raise UsageError(
                f"{spec} names no commit.", hint="--upstream git+URL@COMMIT", meant=(spec, f"git+{spec}@COMMIT")
            )
        if not root.is_dir():
            raise UsageError(
                f"There is no folder {root}.", hint="Name one that is, or a published version: --upstream VERSION"
            )
        return SourceTree.read(self.layout, root)

    def to_fetch(self, spec: str, cache: Path) -> int:
        """The bytes that :meth:`obtain` would fetch of a published version; 0 for what is there, or is not published."""
        if not self._is_published(spec):
            return 0
        sdist = self.find_sdist(spec)
        return 0 if (cache / sdist.folder).is_dir() or (cache / sdist.filename).is_file() else sdist.size

    def _is_published(self, spec: str) -> bool:
        """Whether it names a version: one that is known, or a word that is not a folder either."""
        if spec in self.published():
            return True
        is_path = spec.startswith(("git+", "~", ".")) or os.sep in spec or "/" in spec
        return not is_path and not Path(spec).is_dir()
