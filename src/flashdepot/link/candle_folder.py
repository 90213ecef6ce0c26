"""A folder for ``CANDLE_FLASH_ATTN_BUILD_DIR``: candle up to 0.9 compiles nothing when it finds its archive there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.link.candle_archive import companions, made_archives
from flashdepot.link.candle_cross import ZigSource
from flashdepot.link.candle_sources import archive_time, newer_sources, source_times
from flashdepot.link.library import LinkableLibrary
from flashdepot.system.output_file import record, record_text
from flashdepot.system.output_folder import OutputFolder

COMPANIONS = "libflashattention"
"""Folder of the manifest, the licences and the header that travel with the archive."""

RECORD = ".flashdepot-candle.json"
"""Which files flashdepot wrote there, with their digests."""


class PreparedFolder(msgspec.Struct, frozen=True):
    """The folder, absolute; the archives in it; and the crate whose sources are older, if it was there to look at."""

    root: Path
    archives: tuple[Path, ...]
    crate: Path | None


def prepare_folder(
    library: LinkableLibrary, arguments: int, folder: Path, crate: Path | None, zig: ZigSource
) -> PreparedFolder:
    """Put the archive into a folder so that candle's build script takes it.

    :param crate: the sources of candle-flash-attn, than which the archive must be newer; ``None`` when Cargo has not
        fetched them yet.
    :param zig: asked when the archive is for another system or CPU than this machine's.
    :raises UsageError: when the folder has a shared library, which linkers would take instead, or another's file in the
        place of one of ours.
    :raises MissingToolError: when the file system does not keep the archive's time.
    """
    root = folder.absolute()
    _require_no_rival(root)
    sources = source_times(crate) if crate is not None else {}
    wanted = archive_time(time.time_ns(), sources.values())
    written = OutputFolder(folder, "folder for candle", record(RECORD), "--build-dir DIR", beside_others=True)
    with made_archives(library, arguments, zig, modified_ns=wanted) as archives:
        files = (*archives, *companions(library, f"{COMPANIONS}/"))
        written.write(files, record_text(files))
    made = tuple(root / file.place for file in archives)
    _require_newer(made, sources)
    return PreparedFolder(root, made, crate)


def _require_no_rival(root: Path) -> None:
    for name in ("libflashattention.so", "libflashattention.dylib"):
        if (root / name).exists():
            raise UsageError(
                f"{root} has a {name}, and candle's build script says 'flashattention' without saying which kind: "
                "linkers then take the shared library, which has no run_mha.",
                hint="Name another --build-dir, or remove that file.",
            )


def _require_newer(archives: tuple[Path, ...], sources: Mapping[Path, int]) -> None:
    for archive in archives:
        if left := newer_sources(archive.stat().st_mtime_ns, sources):
            raise MissingToolError(
                f"The file system of {archive.parent} did not keep the archive's time, so that it looks older than "
                f"{left[0]} and candle would compile again.",
                hint="Name a --build-dir on another file system.",
            )
