"""How host compilers are spoken to: what differs between GCC or Clang on Linux and Microsoft's on Windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flashdepot.model.target import Version
from flashdepot.toolchain.nvcc_flags import CXX_FLAGS, GNU_HOST_FLAGS, MSVC_C_LAYER_FLAGS, msvc_host_flags

_GNU_VARIABLES = (
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "SOURCE_DATE_EPOCH",
)
_MSVC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CL", "_CL_", "INCLUDE", "EXTERNAL_INCLUDE")


@dataclass(frozen=True)
class Dialect:
    """The words of one family of host compilers.

    ``variables`` are those of the environment that change what the compilers write. ``c_layer`` begins the command of
    a source of our C layer; with ``c_layer_by_nvcc`` that is nvcc, which hands it on to the host compiler: on Windows
    that gives one spelling of folders and one form of depfile. ``host_flags`` tells what nvcc is given for the host
    compiler's sake, from CUDA's version and the long options of the nvcc at hand.
    """

    object_suffix: str
    nvcc: str
    variables: tuple[str, ...]
    c_layer: tuple[str, ...]
    c_layer_by_nvcc: bool
    host_flags: Callable[[Version, frozenset[str]], tuple[str, ...]]


def _gnu_host_flags(_cuda: Version, _options: frozenset[str]) -> tuple[str, ...]:
    return GNU_HOST_FLAGS


def _zig_host_flags(_cuda: Version, _options: frozenset[str]) -> tuple[str, ...]:
    # The two warnings are about glibc's noexcept on functions that NVIDIA's headers declare again: a thousand lines.
    told = "-Xcompiler=-include,{native}/device/prelude.h,-Wno-macro-redefined"
    return (told, "-diag-suppress=541", "--allow-unsupported-compiler")


GNU = Dialect(
    ".o", "{cuda}/bin/nvcc", _GNU_VARIABLES, ("{cxx}", *CXX_FLAGS), c_layer_by_nvcc=False, host_flags=_gnu_host_flags
)
ZIG = Dialect(".o", "{cuda}/bin/nvcc", _GNU_VARIABLES, (), c_layer_by_nvcc=False, host_flags=_zig_host_flags)
"""zig's clang as the preprocessor of nvcc; what it compiles by itself, the target says."""
MSVC = Dialect(
    ".obj",
    "{cuda}/bin/nvcc.exe",
    _MSVC_VARIABLES,
    ("{cuda}/bin/nvcc.exe", "-ccbin", "{cxx}", *MSVC_C_LAYER_FLAGS),
    c_layer_by_nvcc=True,
    host_flags=msvc_host_flags,
)


def dialect_of(kind: str) -> Dialect:
    """The dialect of a kind of host compiler: ``g++``, ``clang++``, ``cl``."""
    return {"cl": MSVC, "zig": ZIG}.get(kind, GNU)
