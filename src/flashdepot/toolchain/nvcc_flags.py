"""What compilers are told for any source, from a target and what the nvcc at hand can do."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Version

_SYMBOL_FLAGS = ("--static-global-template-stub", "--device-entity-has-hidden-visibility")
"""Keep kernel stubs local to their object. nvcc has them from 12.8 and turns them on itself from 13.0."""

NVCC = "{cuda}/bin/nvcc"

VARIABLES = (
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "SOURCE_DATE_EPOCH",
)
"""Those of the environment that change what nvcc and the clang that preprocesses for it write."""

# The two warnings are about glibc's noexcept on functions that NVIDIA's headers declare again: a thousand lines.
HOST_FLAGS = (
    "-Xcompiler=-include,{native}/device/prelude.h,-Wno-macro-redefined",
    "-diag-suppress=541",
    "--allow-unsupported-compiler",
)
"""What nvcc is given for the sake of zig's clang."""

SOURCE_NAME = ("-Xcudafe", "--orig_src_path_name {name}", "-Xcicc", "--orig_src_path_name {name}")
"""Arguments that make nvcc derive its internal names from a name of ours instead of the source's absolute path.

They pass an option of nvcc's own phases through, which no manual promises: the probe finds out whether it works.
"""


def gencode(sass: Sequence[Architecture], virtual: Architecture | None) -> tuple[str, ...]:
    """The architectures to assemble for.

    :param virtual: the one that the front end compiles for, once for all of ``sass``; ``None``: for each by itself.
    """
    arguments = []
    for architecture in sass:
        arguments += ["-gencode", f"arch=compute_{virtual or architecture},code={architecture.sm}"]
    return tuple(arguments)


_CLASSIC = "classic"
"""The compression that nvcc had before ``--compress-mode``."""

_NEW_MODES = ("size", "balance", "speed")
"""Modes of compression that came with CUDA 12.8, and that the first drivers of CUDA 12 do not read."""


def usual_compression(cuda: Version) -> str:
    """The mode that makes the smallest code which every driver of a CUDA major version reads."""
    return "size" if cuda >= Version("13") else _CLASSIC


def compression(options: frozenset[str], mode: str) -> tuple[str, ...]:
    """The arguments that compress machine code inside the objects.

    :param mode: that of ``--compress-mode``, for an nvcc that has it, or what :func:`usual_compression` gave.
    """
    if "--compress-mode" in options and mode != _CLASSIC:
        return (f"--compress-mode={mode}",)
    return () if mode == "none" else ("-Xfatbin", "-compress-all")


def compresses_newly(flags: Sequence[str]) -> bool:
    """Whether what nvcc is told makes code that the first drivers of CUDA 12 do not read."""
    return any(f"--compress-mode={mode}" in flags for mode in _NEW_MODES)


def nvcc_flags(
    sass: Sequence[Architecture],
    *,
    virtual: Architecture | None,
    compress: str,
    options: frozenset[str],
) -> tuple[str, ...]:
    """What nvcc is told for a CUDA source of any family.

    :param virtual: as for :func:`gencode`.
    """
    symbols = tuple(f"{flag}=true" for flag in _SYMBOL_FLAGS if flag in options)
    return (*HOST_FLAGS, *symbols, *compression(options, compress), *gencode(sass, virtual))
