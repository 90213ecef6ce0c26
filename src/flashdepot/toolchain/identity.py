"""The digests of all that compiles and links, which go into every key."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flashdepot.errors import MissingToolError
from flashdepot.model.host import HostCompiler
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.system.digests import sha256_files
from flashdepot.system.process import run
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.msvc import beside, compiler_libraries
from flashdepot.toolchain.msvc_linking import libraries_on
from flashdepot.toolchain.nvcc import Nvcc

LINKED_RUN_TIMES = ("-static-libstdc++", "-static-libgcc", "-ldl", "-lrt", "-lpthread")
"""What every library is linked with on Linux besides objects and the CUDA runtime."""


def identify_toolchain(toolchain: Toolchain) -> ToolchainId:
    """Versions and SHA-256 of nvcc's programs, of the host compiler's, and of what links, read from their files.

    :raises MissingToolError: when one of them is missing or cannot be read.
    """
    nvcc, cxx = toolchain.nvcc, toolchain.cxx
    if toolchain.zig is not None:
        return ToolchainId(nvcc.version, (*device_tools(nvcc), toolchain.zig.tool), (), toolchain.named)
    cuda, host = str(nvcc.version), str(cxx.version)
    compiling = [(cxx.kind, host, Path(cxx.path).resolve())]
    compiling += [(path.name, host, path) for path in compiler_programs(cxx)]
    linking = [(nvcc.static_runtime.name, cuda, nvcc.static_runtime)]
    linking += [(path.name, host, path) for path in link_inputs(toolchain)]
    # In the order of names, not of paths: those differ by machine.
    linked = sorted(_tools(linking), key=lambda tool: (tool.name, tool.digest))
    return ToolchainId(nvcc.version, (*device_tools(nvcc), *_tools(compiling)), tuple(linked), toolchain.named)


def device_tools(nvcc: Nvcc) -> tuple[Tool, ...]:
    """What makes device code; :raises MissingToolError: when one of it cannot be read."""
    return _tools([(path.name.removesuffix(".exe"), str(nvcc.version), path) for path in nvcc.tools])


def _tools(named: Sequence[tuple[str, str, Path]]) -> tuple[Tool, ...]:
    tools = []
    for (name, version, path), digest in zip(named, sha256_files([path for _, _, path in named]), strict=True):
        if digest is None:
            raise MissingToolError(
                f"{path} cannot be read, and what it builds is known by its bytes.",
                hint="Install it again, or make it readable.",
            )
        tools.append(Tool(name, version, digest))
    return tuple(tools)


def compiler_programs(cxx: HostCompiler) -> list[Path]:
    """What the driver runs or loads: GCC's ``cc1plus`` and the assembler, the libraries of ``cl``."""
    if cxx.kind == "cl":
        return compiler_libraries(cxx)
    found = []
    for name in ("cc1plus", "as"):
        path = _program_of(cxx, name)
        if os.path.isabs(path) and os.path.isfile(path):  # noqa: PTH117, PTH113  (an answer of gcc, not yet a path)
            found.append(Path(path).resolve())
    return found


def _program_of(cxx: HostCompiler, name: str) -> str:
    return run([cxx.path, f"-print-prog-name={name}"]).stdout.strip()


def link_inputs(toolchain: Toolchain) -> list[Path]:
    """What objects become libraries with: linker, archiver, and every file of this machine that the linker reads.

    :raises MissingToolError: when one of the programs is missing.
    """
    cxx = toolchain.cxx
    if cxx.kind == "cl":
        return [*(beside(cxx, name) for name in ("link.exe", "lib.exe")), *libraries_on(toolchain.whole_environment())]
    programs = [shutil.which(_program_of(cxx, name)) for name in ("ld", "collect2")]
    return [*(Path(path).resolve() for path in (*programs, shutil.which("ar")) if path), *_read_by_linker(cxx)]


def _read_by_linker(cxx: HostCompiler) -> list[Path]:
    """The start files, static run times and system libraries that a linker opens, by its own account.

    It is asked to link nothing: ``-t`` names every file that it opens (GNU ld, gold, lld and mold).
    """
    with tempfile.TemporaryDirectory(prefix="flashdepot-link-") as work:
        traced = run([cxx.path, "-shared", "-Wl,-t", *LINKED_RUN_TIMES, "-o", str(Path(work, "nothing.so"))])
    named = (line.strip() for line in traced.output.splitlines())
    opened = {Path(os.path.realpath(name)) for name in named if os.path.isabs(name)}  # noqa: PTH117  (a linker's words)
    return [path for path in opened if path.is_file()]
