"""A folder for ``CANDLE_FLASH_ATTN_BUILD_DIR``: candle up to 0.9 compiles nothing when it finds its archive there."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.link.candle_archive import copy_companions, write_archives
from flashdepot.link.candle_sources import archive_time, newer_sources, source_times
from flashdepot.link.library import LinkableLibrary
from flashdepot.system.files import disk_errors

COMPANIONS = "libflashattention"
"""Folder of the manifest, the licences and the header that travel with the archive."""


@dataclass(frozen=True)
class PreparedFolder:
    """The folder, absolute; the archives in it; and the crate whose sources are older, if it was there to look at."""

    root: Path
    archives: tuple[Path, ...]
    crate: Path | None


def prepare_folder(library: LinkableLibrary, arguments: int, folder: Path, crate: Path | None) -> PreparedFolder:
    """Put the archive into a folder so that candle's build script takes it.

    :param crate: the sources of candle-flash-attn, than which the archive must be newer; ``None`` when Cargo has not
        fetched them yet.
    :raises UsageError: when the folder has a shared library, which linkers would take instead.
    :raises MissingToolError: when the file system does not keep the archive's time.
    """
    root = folder.absolute()
    _require_no_rival(root)
    with disk_errors(root):
        archives = write_archives(library, arguments, root)
        copy_companions(library, root / COMPANIONS)
        _make_newer(archives, crate)
    return PreparedFolder(root, archives, crate)


def _require_no_rival(root: Path) -> None:
    for name in ("libflashattention.so", "libflashattention.dylib"):
        if (root / name).exists():
            raise UsageError(
                f"{root} has a {name}, and candle's build script says 'flashattention' without saying which kind: "
                "linkers then take the shared library, which has no run_mha.",
                hint="Name another --build-dir, or remove that file.",
            )


def _make_newer(archives: tuple[Path, ...], crate: Path | None) -> None:
    sources = source_times(crate) if crate is not None else {}
    wanted = archive_time(time.time_ns(), sources.values())
    for archive in archives:
        os.utime(archive, ns=(wanted, wanted))
        if left := newer_sources(archive.stat().st_mtime_ns, sources):
            raise MissingToolError(
                f"The file system of {archive.parent} did not keep the archive's time, so that it looks older than "
                f"{left[0]} and candle would compile again.",
                hint="Name a --build-dir on another file system.",
            )
