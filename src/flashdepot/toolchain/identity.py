"""The digests of all that compiles and links, which go into every key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashdepot.errors import MissingToolError
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.system.digests import sha256_files
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.nvcc import Nvcc


def identify_toolchain(toolchain: Toolchain) -> ToolchainId:
    """Versions and SHA-256 of nvcc's programs and of zig, which links as well, read from their files.

    :raises MissingToolError: when one of them is missing or cannot be read.
    """
    nvcc = toolchain.nvcc
    return ToolchainId(nvcc.version, (*device_tools(nvcc), toolchain.zig.tool), (), toolchain.named)


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
