"""A toolchain as facts, once it has shown on a small program that it compiles."""

from __future__ import annotations

from pathlib import Path

from flashdepot.families.c_layer import NATIVE
from flashdepot.families.family import Cross, Kit
from flashdepot.model.action import filled_in
from flashdepot.model.recipe import ToolchainId
from flashdepot.model.target import Platform
from flashdepot.targets import target_of
from flashdepot.toolchain.choose import Toolchain
from flashdepot.toolchain.nvcc_flags import HOST_FLAGS
from flashdepot.toolchain.probe_compile import probe_toolchain


def kit_of(toolchain: Toolchain, identity: ToolchainId, platform: Platform, folder: Path) -> Kit:
    """What a family must know of the compilers that serve a platform.

    :param folder: the depot's ``toolchains`` folder, where the answer of the small program is kept.
    :raises MissingToolError: when they do not compile it.
    """
    nvcc = toolchain.nvcc
    here = tuple(filled_in(flag, {"native": str(NATIVE)}) for flag in HOST_FLAGS)
    result = probe_toolchain(toolchain, identity, folder, here)
    cross = Cross(target_of(platform), identity.tools[:-1], identity.tools[-1])
    return Kit(nvcc.version, nvcc.options, cross, result.source_name)
