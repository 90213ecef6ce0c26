"""A source tree that the user has on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.model.recipe import UpstreamId
from flashdepot.upstream.tree import Layout, SourceTree


def read_folder(layout: Layout, root: Path) -> SourceTree:
    """Take a folder as it is, in place.

    :raises UsageError: when it is not there, or not a tree of the family, or holds links or anything but files.
    :raises MissingToolError: when a submodule is not in it.
    """
    if not root.is_dir():
        raise UsageError(
            f"There is no folder {root}.", hint="Name one that is, or a published version: --upstream VERSION"
        )
    files = PlainFiles(root)
    layout.require_complete(files)
    return SourceTree.read(
        layout, UpstreamId(layout.version(files), source_digest(layout, files), origin="folder"), root
    )


def source_digest(layout: Layout, files: PlainFiles) -> str:
    """SHA-256, in hexadecimal, of the names and bytes of every file that gets into a library or a wheel.

    The Python package is part of it: a library knows the one that belongs to its kernels. Times and permissions do not count, nor does the place of the tree.
    """
    digest = hashlib.sha256()
    for name in sorted(files.below(*layout.sources(files))):
        digest.update(f"{name}\0{files.digest(name)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
