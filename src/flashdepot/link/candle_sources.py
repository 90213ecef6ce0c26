"""The sources of candle-flash-attn on this machine, and which of them make its build script compile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.system.toml import read_toml

CRATE = "candle-flash-attn"
_SECOND = 10**9


def find_crate(version: str, cargo_home: Path, crate: str = CRATE) -> Path | None:
    """The folder into which Cargo unpacked a version from a registry; ``None`` when it has not yet."""
    found = sorted((cargo_home / "registry" / "src").glob(f"*/{crate}-{version}/Cargo.toml"))
    return found[0].parent if found else None


def default_cargo_home() -> Path:
    """``CARGO_HOME``, or where Cargo puts it otherwise."""
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


def require_crate(folder: Path, version: str) -> Path:
    """A folder that was named as the crate's; :raises UsageError: when it is not, or of another version."""
    manifest = folder / "Cargo.toml"
    if not manifest.is_file():
        raise UsageError(f"{folder} has no Cargo.toml.", hint=f"Name the folder of {CRATE}'s sources with --crate.")
    package = read_toml(manifest).get("package", {})
    found = package.get("version")
    if package.get("name") != CRATE:
        raise UsageError(f"{folder} is the crate {package.get('name')}, and not {CRATE}.", hint="Check --crate.")
    # In candle's own repository the version is the workspace's: a table that says so, and no text.
    if isinstance(found, str) and found != version:
        raise UsageError(
            f"{folder} is {CRATE} {found}, and --candle-version says {version}.", hint=f"--candle-version {found}"
        )
    return folder


def source_times(crate: Path) -> dict[Path, int]:
    """When each kernel source and header of the crate was last modified, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in sorted((crate / "kernels").rglob("*")) if path.is_file()}


def newer_sources(archive_time: int, sources: Mapping[Path, int]) -> list[Path]:
    """The sources for which candle's build script compiles again: those that are not older than the archive.

    bindgen_cuda asks ``source.duration_since(archive).is_ok()`` of each source, which equal times answer with yes.
    """
    return [path for path, time in sources.items() if time >= archive_time]


def archive_time(now: int, sources: Iterable[int]) -> int:
    """The time that an archive must carry: now, or a second after the newest source, should that be in the future."""
    return max(now, *(time + _SECOND for time in sources), 0)
