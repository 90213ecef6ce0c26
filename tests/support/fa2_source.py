"""The sources of FlashAttention-2, under the names that tests use."""

from __future__ import annotations

from collections.abc import Mapping

from flashdepot.kernels.fa2 import Fa2
from flashdepot.upstream import SourceTree

LAYOUT = Fa2.sources.layout
identify = Fa2.sources.identify
obtain = Fa2.sources.obtain
known_versions = Fa2.sources.known_versions
default_version = Fa2.sources.default_version
find_sdist = Fa2.sources.find_sdist


def licences(tree: SourceTree) -> Mapping[str, str]:
    """Return the licence texts of a tree."""
    return Fa2().licences(tree.files)
