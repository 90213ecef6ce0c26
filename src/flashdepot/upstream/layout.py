"""What upstream's mechanics must know of a family's source trees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from flashdepot.model.selection import Feature, Unit

if TYPE_CHECKING:
    from flashdepot.system.plain_files import PlainFiles


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
