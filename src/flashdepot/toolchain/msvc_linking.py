"""What Microsoft's linker is told about our objects and the CUDA runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ONE_C_RUNTIME = "/NODEFAULTLIB:LIBCMT"
"""cudart_static.lib asks for the static C runtime, the kernels for the shared one; two do not go together."""

SYSTEM_LIBRARIES = ("kernel32.lib", "advapi32.lib", "shell32.lib", "user32.lib")
"""What the static CUDA runtime needs of Windows."""

DLL_FLAGS = (
    "/NOLOGO",
    "/DLL",
    "/MACHINE:X64",
    "/INCREMENTAL:NO",
    "/OPT:REF",
    "/Brepro",  # no dates: equal objects make equal libraries
    ONE_C_RUNTIME,
)
"""What every DLL is linked with."""

_C_RUNTIME = ("msvcrt.lib", "vcruntime.lib", "ucrt.lib", "msvcprt.lib", "oldnames.lib")
"""What objects compiled with ``/MD`` ask for."""


def libraries_on(environment: Mapping[str, str]) -> list[Path]:
    """The libraries of Windows and of its C runtime that the linker takes: the first of each name on ``LIB``."""
    folders = [Path(folder) for folder in environment.get("LIB", "").split(";") if folder]
    found = []
    for name in (*SYSTEM_LIBRARIES, *_C_RUNTIME):
        found += [folder / name for folder in folders if (folder / name).is_file()][:1]
    return found
