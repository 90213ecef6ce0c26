"""Whether a program that makes files failed for want of space, told from what it wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from flashdepot.errors import MissingToolError

_LITTLE_SPACE = 10**9
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|\bLNK1180\b")
_BUS_ERROR = re.compile(r"Bus error|signal 7\b")


def disk_full(name: str, made: str, log: str, folder: Path) -> MissingToolError | None:
    """The error of a compiler or linker that had no space to write; ``None`` when that was not it.

    :param made: what was being done to it: compiled, linked.
    """
    free = shutil.disk_usage(folder).free
    # A full disk takes the message of it as well, and ends a linker that writes into mapped memory by a signal.
    cut_short = not log.strip() or _BUS_ERROR.search(log) is not None
    if not (_NO_SPACE.search(log) or (cut_short and free < _LITTLE_SPACE)):
        return None
    return MissingToolError(
        f"{name}: the disk that holds {folder} filled up while it was {made} ({free / 1e6:.0f} MB are free now); "
        "compilers need up to 1 GB for their temporary files.",
        hint="Free space there, or use another disk: --depot DIR. What was finished is kept.",
    )
