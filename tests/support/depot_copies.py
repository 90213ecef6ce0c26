"""Depots of a test's own with what the shared one holds, so that nothing is fetched or compiled twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

COMPILERS = ("toolchains",)
COMPILED = (*COMPILERS, "actions", "blobs", "intents")
"""With these a build of the test's own compiles its units, and takes what all libraries have in common."""

_UNFINISHED = shutil.ignore_patterns(".*.tmp", ".*.work")  # another test may be writing there


def copy_depot(real: Path, copy: Path, folders: tuple[str, ...] | None = None) -> Path:
    """Copy a depot, or some of its folders. Compilers are linked: ten thousand files that nobody writes to.

    :raises FileExistsError: where a folder of ``copy`` is there.
    """
    copy.mkdir(parents=True, exist_ok=True)
    for source in real.iterdir() if folders is None else (real / name for name in folders):
        if source.is_dir() and source.name not in {"locks", "tmp"}:
            how = _link_or_copy if source.name in COMPILERS else shutil.copy2
            shutil.copytree(source, copy / source.name, symlinks=True, copy_function=how, ignore=_UNFINISHED)
        elif source.is_file():
            shutil.copy2(source, copy / source.name)
    return copy


def _link_or_copy(source: str, copy: str) -> None:
    try:
        os.link(source, copy, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, copy)


def make_own(path: Path) -> None:
    """Give a file that :func:`copy_depot` linked bytes of its own, before a test damages it in place."""
    if path.stat().st_nlink > 1:
        own = path.with_name(f".{path.name}.own")
        shutil.copy2(path, own)
        own.replace(path)
