"""C++ compilers of the host."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

from flashdepot.errors import FlashdepotError
from flashdepot.host.msvc import find_msvc
from flashdepot.model.host import HostCompiler
from flashdepot.model.target import Version
from flashdepot.system.process import run

_NEWEST_GCC = 16
_OLDEST_GCC = 9


def find_compilers() -> tuple[HostCompiler, ...]:
    """Compilers in the order of preference: ``NVCC_CCBIN``, ``CXX``, ``g++``, ``g++-N`` newest first, ``clang++``.

    On Windows it is those of :func:`find_msvc` alone: nvcc there calls no other.
    """
    if os.name == "nt":
        return find_msvc()
    names = [os.environ.get("NVCC_CCBIN", ""), os.environ.get("CXX", ""), "g++"]
    names += [f"g++-{n}" for n in range(_NEWEST_GCC, _OLDEST_GCC - 1, -1)]
    names += ["clang++"]
    programs: dict[str, str] = {}
    for name in names:
        if name and (program := shutil.which(name)):
            programs.setdefault(os.path.realpath(program), program)
    with ThreadPoolExecutor() as pool:
        return tuple(compiler for compiler in pool.map(identify_compiler, programs.values()) if compiler)


def identify_compiler(program: str) -> HostCompiler | None:
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
