"""Which source a library is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from flashdepot.model.table import Table

PUBLISHED = "sdist"
"""The origin of a source whose digest is on record."""


class UpstreamId(msgspec.Struct, frozen=True):
    """A source tree of one family.

    ``digest`` stands for every byte that a build can read: the SHA-256 of the published sdist, or of the source files
    of a folder or commit. ``origin`` says where it came from and is not part of any key: ``sdist``, ``folder`` or
    ``git+URL``. ``commits`` holds the resolved commit of the tree (``"."``) and of each submodule, for a git source.
    """

    version: str
    digest: str
    origin: str = PUBLISHED
    commits: Mapping[str, str] = msgspec.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All four fields."""
        return {
            "version": self.version,
            "digest": self.digest,
            "origin": self.origin,
            "commits": dict(sorted(self.commits.items())),
        }

    @classmethod
    def read(cls, row: Table) -> UpstreamId:
        """Read what :meth:`to_json` wrote; :raises ValueError: for a field that is missing or cannot be."""
        return cls(row.take("version", str), row.digest("digest"), row.take("origin", str), row.text_by_name("commits"))

    def __str__(self) -> str:
        if commit := self.commits.get("."):
            return f"{self.version} ({self.origin}@{commit[:12]})"
        return self.version if self.origin == PUBLISHED else f"{self.version} ({self.origin})"


def leading(upstreams: Mapping[str, UpstreamId]) -> UpstreamId:
    """Of the sources of a library's families, the one whose version the library and its wheel have."""
    return upstreams[min(upstreams)]
