"""From what the user names to a source tree: a published version, a folder, or a commit."""

from __future__ import annotations

import os
from pathlib import Path

from flashdepot.system.net import Progress
from flashdepot.upstream.folder import read_folder
from flashdepot.upstream.published import obtain_sdist
from flashdepot.upstream.sdists import find_sdist, known_versions
from flashdepot.upstream.tree import Identified, SourceTree


def identify(spec: str, cache: Path) -> Identified:
    """Say what a source is and can compile, as cheaply as that can be known.

    A published version takes neither network nor disk, a folder is read, a commit is fetched if it is not in the
    cache yet.

    :param spec: ``2.8.3``, a folder, or ``git+URL@REF``.
    :raises FlashdepotError: as :func:`obtain` does.
    """
    if _is_published(spec):
        return find_sdist(spec).identified
    return obtain(spec, cache).identified


def obtain(spec: str, cache: Path, *, on_progress: Progress | None = None) -> SourceTree:
    """Return the tree of a source, complete and on disk.

    :param spec: ``2.8.3``, a folder, or ``git+URL@REF``.
    :param cache: the depot's ``upstreams`` folder.
    :raises UsageError: for a version that is not known, or a folder or commit that is not flash-attention's.
    :raises MissingToolError: for a tree without CUTLASS, no git program, or a disk that cannot be written.
    :raises IntegrityError: for a published file with other bytes.
    :raises NetworkError: for something to be fetched that cannot be.
    """
    if spec.startswith("git+"):
        # 60 ms of imports that a depot hit on a published version does not pay.
        from flashdepot.upstream.git import GitSource, obtain_commit  # noqa: PLC0415

        return obtain_commit(GitSource.parse(spec), cache)
    if _is_published(spec):
        return obtain_sdist(find_sdist(spec), cache, on_progress)
    return read_folder(Path(os.path.abspath(Path(spec).expanduser())))  # noqa: PTH100  (links stay as the user wrote them)


def _is_published(spec: str) -> bool:
    """Whether it names a version: one that is known, or a word that is no folder either."""
    if spec in known_versions():
        return True
    is_path = spec.startswith(("git+", "~", ".")) or os.sep in spec or "/" in spec
    return not is_path and not Path(spec).is_dir()
