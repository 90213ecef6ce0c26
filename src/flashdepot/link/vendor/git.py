"""What git makes of a vendored folder: whether it would leave files out, and whether Git LFS is set up."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from flashdepot.errors import FlashdepotError
from flashdepot.system.process import run


def work_tree(folder: Path) -> Path | None:
    """The root of the repository that a folder lies in, by its ``.git``; ``None`` outside of one."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100
    return next((p for p in (absolute, *absolute.parents) if (p / ".git").exists()), None)


def ignored(root: Path, paths: Sequence[Path]) -> list[str]:
    """Those of the paths that a ``git add`` would leave out, as git names them; empty without git."""
    try:
        done = run(["git", "-C", str(root), "check-ignore", "--no-index", "--", *map(str, paths)], timeout=30)
    except FlashdepotError:
        return []
    return done.stdout.splitlines() if done.status == 0 else []


def has_lfs_filter(root: Path) -> bool | None:
    """Whether ``git lfs install`` was run for this user or repository; ``None`` without git."""
    try:
        return run(["git", "-C", str(root), "config", "--get", "filter.lfs.clean"], timeout=30).status == 0
    except FlashdepotError:
        return None


def pull_command(directory: Path, folder: str) -> str:
    """The command that fetches the files behind the pointers of one target. Git LFS takes paths from the root."""
    place = Path(os.path.abspath(directory)) / folder  # noqa: PTH100
    root = work_tree(directory)
    inside = place.relative_to(root).as_posix() if root else folder
    return f'git lfs install && git lfs pull --include "{inside}/**" --exclude ""'
