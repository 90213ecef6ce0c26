"""Compiler arguments, from a selection, a target and what the nvcc at hand can do."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.model.architecture import KERNEL_FLOOR, Architecture
from flashdepot.model.selection import Feature

NAMESPACE = "flashdepot_fa2"
"""The C++ namespace of the kernels: ours, so that another FlashAttention in the same process never meets them."""

_UPSTREAM_FLAGS = (
    # Upstream's own (setup.py, nvcc_flags); its numerics are tested with these and no others.
    "-O3",
    "-std=c++17",
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "--use_fast_math",
)

_SYMBOL_FLAGS = ("--static-global-template-stub", "--device-entity-has-hidden-visibility")
"""Keep kernel stubs local to their object. nvcc has them from 12.8 and turns them on itself from 13.0."""


def feature_defines(available: frozenset[Feature], selected: frozenset[Feature]) -> tuple[str, ...]:
    """Upstream's macros that leave out what is not selected, among those that the tree knows."""
    return tuple(f"-DFLASHATTENTION_DISABLE_{f.value.upper()}" for f in Feature if f in available - selected)


def gencode(sass: Sequence[Architecture], front_end: str) -> tuple[str, ...]:
    """The architectures to assemble for.

    ``shared`` compiles once, for the oldest architecture the kernels know, and runs only the assembler for each of
    ``sass``; ``native`` compiles each by itself. Upstream's code asks no more of ``__CUDA_ARCH__`` than that it is at
    least 800, so both give the same algorithm.
    """
    arguments = []
    for architecture in sass:
        virtual = KERNEL_FLOOR if front_end == "shared" else architecture
        arguments += ["-gencode", f"arch=compute_{virtual},code={architecture.sm}"]
    return tuple(arguments)


def compression(options: frozenset[str], mode: str) -> tuple[str, ...]:
    """The arguments that compress machine code inside the objects: ``mode`` where this nvcc has modes."""
    if "--compress-mode" in options:
        return (f"--compress-mode={mode}",)
    return () if mode == "none" else ("-Xfatbin", "-compress-all")


def nvcc_flags(
    sass: Sequence[Architecture],
    *,
    front_end: str,
    compress: str,
    options: frozenset[str],
) -> tuple[str, ...]:
    """What every CUDA source is compiled with, besides its own defines and include folders."""
    symbols = tuple(f"{flag}=true" for flag in _SYMBOL_FLAGS if flag in options)
    return (
        *_UPSTREAM_FLAGS,
        f"-DFLASH_NAMESPACE={NAMESPACE}",
        "-Xcompiler=-fPIC,-fvisibility=hidden,-fno-gnu-unique",
        *symbols,
        *compression(options, compress),
        *gencode(sass, front_end),
    )


CXX_FLAGS = (
    "-O2",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-gnu-unique",
    "-Wall",
    "-Wextra",
    f"-DFLASH_NAMESPACE={NAMESPACE}",
)
"""What the C layer is compiled with, besides its include folders."""
