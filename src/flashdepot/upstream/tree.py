"""A source tree: where it is, what is where in it, and what it can compile."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.recipe import UpstreamId

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flashdepot.files.directory import PlainFiles
    from flashdepot.model.selection import Feature, Unit


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
        """Check that a folder is such a tree, with its submodules.

        :raises UsageError: when it is another project's.
        :raises MissingToolError: when a submodule is not in it.
        """

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        """Read what a tree can compile."""

    def features(self, files: PlainFiles) -> frozenset[Feature]:
        """Read the features that a tree can leave out."""

    def version(self, files: PlainFiles) -> str:
        """Read the version that a tree gives itself; :data:`UNKNOWN_VERSION` where it gives none."""

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """Every file and folder of a tree that a compiler can reach, or that gets into a wheel; not all must be there."""


UNKNOWN_VERSION = "unknown"


def is_kept(layout: Layout, name: str) -> bool:
    """Whether a file of a tree, by its name with ``/``, is one that flashdepot needs."""
    return any(kept in (".", name) or name.startswith(f"{kept}/") for kept in layout.kept)


class Identified(msgspec.Struct, frozen=True):
    """What is known of an upstream without its tree being unpacked."""

    id: UpstreamId
    units: frozenset[Unit]
    features: frozenset[Feature]


class SourceTree(msgspec.Struct, frozen=True):
    """A tree on disk, complete. It is read and never written to."""

    id: UpstreamId
    root: Path
    units: frozenset[Unit]
    features: frozenset[Feature]

    @classmethod
    def read(cls, layout: Layout, identity: UpstreamId, root: Path) -> SourceTree:
        """Read units and features from the files of a tree.

        :raises UsageError: when it is not a tree of the family.
        :raises MissingToolError: when a submodule is not in it.
        """
        from flashdepot.files.directory import PlainFiles  # noqa: PLC0415  (a depot hit on a published version reads none)

        files = PlainFiles(root)
        layout.require_complete(files)
        return cls(identity, root, layout.units(files), layout.features(files))

    @property
    def files(self) -> PlainFiles:
        """What may be read of it."""
        from flashdepot.files.directory import PlainFiles  # noqa: PLC0415  (as above)

        return PlainFiles(self.root)

    @property
    def identified(self) -> Identified:
        """The same without the place."""
        return Identified(self.id, self.units, self.features)


def read_folder(layout: Layout, root: Path) -> SourceTree:
    """Take a folder as it is, in place; raises as :meth:`SourceTree.read`, :class:`UsageError` also when it is not there."""
    if not root.is_dir():
        raise UsageError(
            f"There is no folder {root}.", hint="Name one that is, or a published version: --upstream VERSION"
        )
    from flashdepot.files.directory import PlainFiles  # noqa: PLC0415  (as above)

    files = PlainFiles(root)
    layout.require_complete(files)
    identity = UpstreamId(layout.version(files), source_digest(layout, files), origin="folder")
    return SourceTree.read(layout, identity, root)


def source_digest(layout: Layout, files: PlainFiles) -> str:
    """SHA-256, in hexadecimal, of the names and bytes of every file that gets into a library or a wheel.

    The Python package is part of it: a library knows the one that belongs to its kernels. Times and permissions do not count, nor does the place of the tree.
    """
    digest = hashlib.sha256()
    for name in sorted(files.below(*layout.sources(files))):
        digest.update(f"{name}\0{files.digest(name)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
