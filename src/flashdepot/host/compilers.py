"""C++ compilers of the host."""

from __future__ import annotations

import os
import re
import shutil

from flashdepot.errors import FlashdepotError
from flashdepot.model.host import HostCompiler
from flashdepot.model.target import Version
from flashdepot.system.process import run

_NEWEST_GCC = 16
_OLDEST_GCC = 9


def find_compilers() -> tuple[HostCompiler, ...]:
    """Compilers in the order of preference: ``NVCC_CCBIN``, ``CXX``, ``g++``, ``g++-N`` newest first, ``clang++``."""
    names = [os.environ.get("NVCC_CCBIN", ""), os.environ.get("CXX", ""), "g++"]
    names += [f"g++-{n}" for n in range(_NEWEST_GCC, _OLDEST_GCC - 1, -1)]
    names += ["clang++"]
    found: dict[str, HostCompiler] = {}
    for name in names:
        program = shutil.which(name) if name else None
        if program is None or (real := os.path.realpath(program)) in found:
            continue
        if compiler := identify(program):
            found[real] = compiler
    return tuple(found.values())


def identify(program: str) -> HostCompiler | None:
    """Ask a program which compiler it is; ``None`` when it is none that nvcc can use."""
    try:
        done = run([program, "-dM", "-E", "-x", "c++", os.devnull], timeout=30)
    except FlashdepotError:
        return None
    macros = dict(re.findall(r"#define (__\w+) (\d+)", done.stdout))
    if "__clang_major__" in macros:
        kind, names = "clang++", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    elif "__GNUC__" in macros:
        kind, names = "g++", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    else:
        return None
    return HostCompiler(kind, program, Version(".".join(macros.get(name, "0") for name in names)))
