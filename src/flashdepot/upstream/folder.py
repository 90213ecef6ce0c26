"""A source tree that the user has on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.model.upstream import UpstreamId
from flashdepot.system.files import sha256_file
from flashdepot.upstream.tree import CUTLASS_DIR, SOURCE_DIR, SourceTree, read_version, require_complete


def read_folder(root: Path) -> SourceTree:
    """Take a folder as it is, in place.

    :raises UsageError: when it is not there, or not a tree of flash-attention.
    :raises MissingToolError: when CUTLASS is not in it.
    """
    if not root.is_dir():
        raise UsageError(
            f"There is no folder {root}.", hint="Name one that is, or a published version: --upstream 2.8.3"
        )
    require_complete(root)
    return SourceTree.read(UpstreamId(read_version(root), source_digest(root), origin="folder"), root)


def source_digest(root: Path) -> str:
    """SHA-256, in hexadecimal, of the names and bytes of every file that a compiler can reach in a tree.

    Those are ``csrc/flash_attn/src``, the ``.cpp`` files beside it, and CUTLASS's ``include``. Times and permissions
    do not count, nor does the place of the tree.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_sources(root)):
        digest.update(f"{name}\0{sha256_file(path)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    files = [*_files(root / SOURCE_DIR), *_files(root / CUTLASS_DIR / "include")]
    for path in [*files, *(root / SOURCE_DIR).parent.glob("*.cpp")]:
        yield path.relative_to(root).as_posix(), path


def _files(top: Path) -> Iterator[Path]:
    """Every file below a folder, but for what editors and Python leave behind."""
    for folder, folders, names in os.walk(top, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        yield from (Path(folder, name) for name in names if not name.startswith(".") and not name.endswith("~"))
