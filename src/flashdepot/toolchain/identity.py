"""The digests of the programs that compile, which go into every key."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flashdepot.model.host import HostCompiler
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.system.files import sha256_file
from flashdepot.system.process import run
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.msvc import compiler_libraries
from flashdepot.toolchain.nvcc import Nvcc


def identify_toolchain(toolchain: Toolchain) -> ToolchainId:
    """Versions and SHA-256 of nvcc's programs and of the host compiler's, read from their files."""
    nvcc, cxx = toolchain.nvcc, toolchain.cxx
    if toolchain.zig is not None:
        return ToolchainId(nvcc.version, (*device_tools(nvcc), toolchain.zig.tool), toolchain.named)
    named = [(path.name.removesuffix(".exe"), str(nvcc.version), path) for path in nvcc.tools]
    named += [(cxx.kind, str(cxx.version), Path(cxx.path).resolve())]
    named += [(path.name, str(cxx.version), path) for path in compiler_programs(cxx)]
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(sha256_file, [path for _, _, path in named]))
    tools = tuple(Tool(name, version, digest) for (name, version, _), digest in zip(named, digests, strict=True))
    return ToolchainId(nvcc.version, tools, toolchain.named)


def device_tools(nvcc: Nvcc) -> tuple[Tool, ...]:
    """The programs that make device code."""
    version = str(nvcc.version)
    return tuple(Tool(path.name.removesuffix(".exe"), version, sha256_file(path)) for path in nvcc.tools)


def compiler_programs(cxx: HostCompiler) -> list[Path]:
    """What the driver runs or loads: GCC's ``cc1plus`` and the assembler, the libraries of ``cl``."""
    if cxx.kind == "cl":
        return compiler_libraries(cxx)
    found = []
    for name in ("cc1plus", "as"):
        path = run([cxx.path, f"-print-prog-name={name}"]).stdout.strip()
        if os.path.isabs(path) and os.path.isfile(path):  # noqa: PTH117, PTH113  (an answer of gcc, not yet a path)
            found.append(Path(path).resolve())
    return found
