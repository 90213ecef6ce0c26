"""The disks behind the folders that work needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from flashdepot.model.host import Disk
from flashdepot.system.user_folders import user_cache

_MOUNTS = Path("/proc/self/mounts")


def probe_disks(depot: Path | None) -> tuple[Disk, ...]:
    """The disks of the temporary folder, the user's cache and the depot (the cache's own when none is named).

    The temporary folder is left out where there is none that can be used.
    """
    ours = user_cache()
    places = {"cache": ours.parent, "depot": depot or ours}
    with contextlib.suppress(FileNotFoundError):  # no folder may be written, or no file have a byte
        places = {"temp": Path(tempfile.gettempdir()), **places}
    types = mount_types(_mounts())
    return tuple(disk for use, place in places.items() if (disk := look(use, place, types)))


def look(use: str, place: Path, types: Mapping[str, str]) -> Disk | None:
    """The disk of one folder, or of the nearest above it that exists; ``None`` when it cannot be seen."""
    there = next((p for p in (place, *place.parents) if p.exists()), None)
    if there is None:
        return None
    try:
        return Disk(use, str(place), shutil.disk_usage(there).free, _type_of(there, types), str(there.stat().st_dev))
    except OSError:
        return None


def mount_types(mounts: str) -> Mapping[str, str]:
    """File system types by mount point, from the text of ``/proc/self/mounts``, which spells blanks by their octal code."""
    rows = (line.split() for line in mounts.splitlines())
    return {row[1].replace("\\040", " "): row[2] for row in rows if len(row) > 2}  # noqa: PLR2004


def _type_of(place: Path, types: Mapping[str, str]) -> str:
    real = Path(os.path.realpath(place))
    return next((types[str(p)] for p in (real, *real.parents) if str(p) in types), "")


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(errors="replace")
    except OSError:
        return ""
