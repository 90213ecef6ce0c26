"""A source tree that the user has on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.model.upstream import UpstreamId
from flashdepot.system.files import sha256_file
from flashdepot.upstream.layout import Layout
from flashdepot.upstream.tree import SourceTree


def read_folder(layout: Layout, root: Path) -> SourceTree:
    """Take a folder as it is, in place.

    :raises UsageError: when it is not there, or not a tree of the family.
    :raises MissingToolError: when a submodule is not in it.
    """
    if not root.is_dir():
        raise UsageError(
            f"There is no folder {root}.", hint="Name one that is, or a published version: --upstream VERSION"
        )
    layout.require_complete(root)
    return SourceTree.read(layout, UpstreamId(layout.version(root), source_digest(layout, root), origin="folder"), root)


def source_digest(layout: Layout, root: Path) -> str:
    """SHA-256, in hexadecimal, of the names and bytes of every file that gets into a library or a wheel.

    The Python package is part of it: a library knows the one that belongs to its kernels. Times and permissions do not count, nor does the place of the tree.
    """
    digest = hashlib.sha256()
    for name, path in sorted(source_files(layout, root)):
        digest.update(f"{name}\0{sha256_file(path)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def source_files(layout: Layout, root: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of every file of a tree that gets into a library or a wheel."""
    yield from ((path.relative_to(root).as_posix(), path) for path in _files(layout, root))


def _files(layout: Layout, root: Path) -> Iterator[Path]:
    """Every file of the sources, but for what editors and Python leave behind."""
    for top in layout.sources(root):
        if top.is_file():
            yield top
        for folder, folders, names in os.walk(top, followlinks=True):
            folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
            yield from (Path(folder, name) for name in names if not name.startswith(".") and not name.endswith("~"))
