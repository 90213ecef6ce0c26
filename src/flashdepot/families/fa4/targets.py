"""What FlashAttention-4's kernels are compiled for: GPUs, and systems that launch them."""

from __future__ import annotations

from flashdepot.model.architecture import Architecture

NAME = "fa4"

SASS = {
    Architecture(9, 0): "90a",
    Architecture(10, 0): "100f",
    Architecture(11, 0): "110f",
    Architecture(12, 0): "120f",
}
"""The architectures that there are kernels for, each with the name that CuTe compiles for. What is compiled for 100f runs on
10.3 too, and for 120f on 12.1."""

PROVEN = frozenset({Architecture(9, 0)})
"""Those on which the kernels have been proven (benchmarks/fa4.md)."""

PYTHONS = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
"""The versions of CPython that CuTe DSL is published for, see ``toolchain/cute_dsl_wheels.toml``."""

HOSTS = {
    "linux-x86_64": ("x86_64-unknown-linux-gnu", "x86-64-v2"),
    "linux-aarch64": ("aarch64-unknown-linux-gnu", "generic"),
}
"""Triple and oldest CPU of the launch code."""


def code_for(gpu: Architecture) -> str:
    """What a GPU of a compute capability runs, of :data:`SASS`; empty where there is nothing."""
    return next((code for code in SASS.values() if Architecture.parse(code).runs_on(gpu)), "")
