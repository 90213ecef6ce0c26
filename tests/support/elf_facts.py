"""What readelf says a program needs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def needed(program: Path) -> list[str]:
    """The sonames of ``readelf -d``, in their order."""
    listed = subprocess.run(["readelf", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", listed)


def need_of_library(kind: str) -> list[str]:
    """What of ours a program needs that was linked one way or the other."""
    return ["libflashattention.so.1"] if kind == "shared" else []


def ours(program: Path) -> list[str]:
    """The sonames among them that are ours or CUDA's: the ones that a user would have to bring along."""
    return [name for name in needed(program) if "flashattention" in name or "cuda" in name]
