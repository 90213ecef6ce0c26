"""flashdepot_jax as its wheel lays it out, over a library that a test gives it."""

from __future__ import annotations

import shutil
from pathlib import Path

from flashdepot.wheel.builder import RUNTIME


def lay_out(site: Path) -> Path:
    """Put the package into a folder; gives the place for its library, whose folder is there."""
    folder = site / "flashdepot_jax"
    shutil.copytree(RUNTIME.parent / "jax", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for shared in ("layout.py", "numbers.py"):
        shutil.copy(RUNTIME / shared, folder)
    (folder / "lib").mkdir()
    return folder / "lib" / "libflashattention.so.1"
