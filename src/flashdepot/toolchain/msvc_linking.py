"""What Microsoft's linker is told about our objects and the CUDA runtime."""

from __future__ import annotations

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
