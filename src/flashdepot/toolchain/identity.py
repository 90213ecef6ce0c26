"""The digests of all that compiles and links, which go into every key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashdepot.errors import MissingToolError
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.system.digests import sha256_files
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.msvc import beside, compiler_libraries
from flashdepot.toolchain.msvc_linking import libraries_on
from flashdepot.toolchain.nvcc import Nvcc


def identify_toolchain(toolchain: Toolchain) -> ToolchainId:
    """Versions and SHA-256 of nvcc's programs, of the host compiler's, and of what links, read from their files.

    :raises MissingToolError: when one of them is missing or cannot be read.
    """
    nvcc, cxx = toolchain.nvcc, toolchain.cxx
    if toolchain.zig is not None:
        return ToolchainId(nvcc.version, (*device_tools(nvcc), toolchain.zig.tool), (), toolchain.named)
    cuda, host = str(nvcc.version), str(cxx.version)
    compiling = [(cxx.kind, host, Path(cxx.path).resolve())]
    compiling += [(path.name, host, path) for path in compiler_libraries(cxx)]
    linking = [(nvcc.static_runtime.name, cuda, nvcc.static_runtime)]
    linking += [(name, host, beside(cxx, name)) for name in ("link.exe", "lib.exe")]
    linking += [(path.name, host, path) for path in libraries_on(toolchain.whole_environment())]
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
