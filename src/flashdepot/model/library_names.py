"""What the files of a library are called on each system."""

from __future__ import annotations

import msgspec

from flashdepot.errors import IncompatibleError


class LibraryNames(msgspec.Struct, frozen=True):
    """The file names of one system, in ``lib/shared`` and ``lib/static``."""

    shared: str
    """The shared library, as a program loads it."""
    shared_linked: str
    """What a linker reads for it: a link to it, or on Windows its import library."""
    static: tuple[str, ...]
    """The static library, by each of its names; the linkers of the system look for the first."""
    cuda_runtime: str
    """NVIDIA's static CUDA runtime, as it is called in a toolkit and beside the static library."""


LINUX = LibraryNames(
    shared="libflashattention.so.1",
    shared_linked="libflashattention.so",
    static=("libflashattention.a",),
    cuda_runtime="libcudart_static.a",
)
WINDOWS = LibraryNames(
    shared="flashattention.dll",
    shared_linked="flashattention.lib",
    # link.exe looks for the first, build scripts in Rust that know Linux for the second.
    static=("flashattention.lib", "libflashattention.a"),
    cuda_runtime="cudart_static.lib",
)
_NAMES = {"linux": LINUX, "windows": WINDOWS}


def names_of(system: str) -> LibraryNames:
    """The names of a system; :raises IncompatibleError: for one that no library is made for."""
    if system not in _NAMES:
        raise IncompatibleError(
            f"This is a library for '{system}', and how those are linked is not known.",
            hint=f"Name a library for {' or '.join(_NAMES)}: --library DIR",
        )
    return _NAMES[system]
