"""A source tree: where it is, and what it can compile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashdepot.model.selection import Feature, Unit
from flashdepot.model.upstream import UpstreamId
from flashdepot.upstream.layout import Layout

if TYPE_CHECKING:
    from flashdepot.system.plain_files import PlainFiles


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
        from flashdepot.system.plain_files import PlainFiles  # noqa: PLC0415  (a depot hit on a published version reads none)

        files = PlainFiles(root)
        layout.require_complete(files)
        return cls(identity, root, layout.units(files), layout.features(files))

    @property
    def files(self) -> PlainFiles:
        """What may be read of it."""
        from flashdepot.system.plain_files import PlainFiles  # noqa: PLC0415  (as above)

        return PlainFiles(self.root)

    @property
    def identified(self) -> Identified:
        """The same without the place."""
        return Identified(self.id, self.units, self.features)
