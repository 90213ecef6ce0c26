"""How nvcc is spoken to: with zig's clang as its preprocessor on Linux, with Microsoft's compiler on Windows."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flashdepot.model.target import Version
from flashdepot.toolchain.nvcc_flags import msvc_host_flags


class Dialect(msgspec.Struct, frozen=True):
    """The words that nvcc takes with one kind of host compiler.

    ``variables`` are those of the environment that change what the compilers write. ``host_flags`` tells what nvcc is
    given for the host compiler's sake, from CUDA's version and the long options of the nvcc at hand.
    """

    nvcc: str
    variables: tuple[str, ...]
    host_flags: Callable[[Version, frozenset[str]], tuple[str, ...]]


def _zig_host_flags(_cuda: Version, _options: frozenset[str]) -> tuple[str, ...]:
    # The two warnings are about glibc's noexcept on functions that NVIDIA's headers declare again: a thousand lines.
    told = "-Xcompiler=-include,{native}/device/prelude.h,-Wno-macro-redefined"
    return (told, "-diag-suppress=541", "--allow-unsupported-compiler")


ZIG = Dialect(
    "{cuda}/bin/nvcc",
    (
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "SOURCE_DATE_EPOCH",
    ),
    _zig_host_flags,
)
"""zig's clang preprocesses, whatever the system; what it compiles by itself, the target says."""
MSVC = Dialect(
    "{cuda}/bin/nvcc.exe",
    ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CL", "_CL_", "INCLUDE", "EXTERNAL_INCLUDE"),
    msvc_host_flags,
)
"""``cl`` is nvcc's host compiler, and nvcc hands it the sources of the C layer as well."""


def dialect_of(kind: str) -> Dialect:
    """The dialect of a kind of host compiler: ``zig`` or ``cl``."""
    return MSVC if kind == "cl" else ZIG
