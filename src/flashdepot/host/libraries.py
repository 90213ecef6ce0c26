"""Where the loader of this system looks for shared libraries, and how new its C++ library is."""

from __future__ import annotations

from pathlib import Path

from flashdepot.binary.elf import ElfFile, version_floor
from flashdepot.binary.window import open_window
from flashdepot.errors import IntegrityError
from flashdepot.model.target import Version

CXX_LIBRARY = "libstdc++.so.6"
_USUAL = ("/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/lib", "/usr/lib",
    "/usr/local/cuda/lib64")  # fmt: skip
_LISTED = Path("/etc/ld.so.conf.d")


def system_folders(listed: Path = _LISTED) -> tuple[Path, ...]:
    """The folders that the system's files name, then the usual ones."""
    folders = []
    for listing in sorted(listed.glob("*.conf")) if listed.is_dir() else ():
        lines = listing.read_text(errors="replace").splitlines()
        folders += [Path(line.strip()) for line in lines if line.startswith("/")]
    return (*folders, *(Path(p) for p in _USUAL))


def cxx_versions(library: Path) -> tuple[Version | None, Version | None]:
    """The newest ``GLIBCXX_*`` and ``CXXABI_*`` of a libstdc++; ``None`` where it cannot be read."""
    try:
        with open_window(library) as window:
            offered = ElfFile(window).version_definitions
    except (IntegrityError, OSError):
        return None, None
    return version_floor(offered, "GLIBCXX"), version_floor(offered, "CXXABI")


def system_cxx_versions() -> tuple[Version | None, Version | None]:
    """Those of the system's own libstdc++."""
    found = (folder / CXX_LIBRARY for folder in system_folders())
    path = next((path for path in found if path.is_file()), None)
    return cxx_versions(path) if path is not None else (None, None)
