"""What compilers are told for any source, from a target and what the nvcc at hand can do."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.facts.compilers import needs_conforming_preprocessor
from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Version

_SYMBOL_FLAGS = ("--static-global-template-stub", "--device-entity-has-hidden-visibility")
"""Keep kernel stubs local to their object. nvcc has them from 12.8 and turns them on itself from 13.0."""

SOURCE_NAME = ("-Xcudafe", "--orig_src_path_name {name}", "-Xcicc", "--orig_src_path_name {name}")
"""Arguments that make nvcc derive its internal names from a name of ours instead of the source's absolute path.

They pass an option of nvcc's own phases through, which no manual promises: the probe finds out whether it works.
"""

_MSVC_OPTIONS = (
    "/MD",  # nvcc's default is the static C runtime; Rust, Python and torch use the shared one
    "/EHsc",  # the standard library's headers, which CUTLASS includes, throw
    "/bigobj",  # kernels have more sections than a plain object can count
    "/utf-8",  # sources are UTF-8, whatever the country's code page is
    "/Zc:__cplusplus",  # else it is 199711L, and CUTLASS hides its C++17 parts
)


def msvc_host_flags(cuda: Version, options: frozenset[str]) -> tuple[str, ...]:
    """What nvcc is told for the sake of ``cl``. ``/permissive-`` is not: CUTLASS's aliases do not compile with it.

    :param options: the long options of the nvcc at hand.
    """
    chosen = (*_MSVC_OPTIONS, *(("/Zc:preprocessor",) if needs_conforming_preprocessor(cuda) else ()))
    # The environment is loaded once for all: nvcc need not run vcvars64.bat for every unit.
    environment = ("--use-local-env",) if "--use-local-env" in options else ()
    return (f"-Xcompiler={','.join(chosen)}", "-D_USE_MATH_DEFINES", *environment)


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
    host: Sequence[str],
) -> tuple[str, ...]:
    """What nvcc is told for a CUDA source of any family.

    :param virtual: as for :func:`gencode`.
    :param host: what the host compiler is to be given.
    """
    symbols = tuple(f"{flag}=true" for flag in _SYMBOL_FLAGS if flag in options)
    return (*host, *symbols, *compression(options, compress), *gencode(sass, virtual))


MSVC_C_LAYER_FLAGS = (
    "-O2",
    "-std=c++17",
    # Names leave the DLL by its definition file. An export in the objects would make every program that links the
    # static library export them as well.
    "-DFA_STATIC",
)
"""What nvcc hands the C layer to ``cl`` with, besides :func:`msvc_host_flags` and the include folders."""
