"""A source tree: where it is, and what it can compile."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flashdepot.model.selection import Feature, Unit
from flashdepot.model.upstream import UpstreamId
from flashdepot.upstream.layout import Layout


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
        layout.require_complete(root)
        return cls(identity, root, layout.units(root), layout.features(root))

    @property
    def identified(self) -> Identified:
        """The same without the place."""
        return Identified(self.id, self.units, self.features)
