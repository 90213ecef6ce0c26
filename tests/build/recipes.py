"""Recipes and compilations for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flashdepot.build.compilation import Compilation
from flashdepot.build.flags import nvcc_flags
from flashdepot.model.architecture import parse_list
from flashdepot.model.recipe import Recipe, Tool, ToolchainId
from flashdepot.model.selection import ALL_FEATURES, Dtype, Pass, Selection, Unit
from flashdepot.model.target import Platform, Target, Version
from flashdepot.model.upstream import UpstreamId

TOOLS = (Tool("nvcc", "13.0.88", "a" * 64), Tool("cicc", "13.0.88", "b" * 64), Tool("g++", "12.2.0", "c" * 64))
OPTIONS = frozenset({"--objdir-as-tempdir", "--frandom-seed", "--compress-mode", "--static-global-template-stub"})


def make_unit(**changes: Any) -> Unit:
    return replace(Unit(Pass.FWD, 64, Dtype.BF16, causal=False), **changes)


def make_recipe(sass: str = "80,90", **changes: Any) -> Recipe:
    recipe = Recipe(
        upstream=UpstreamId("2.8.3.post2", "d" * 64),
        selection=Selection(frozenset({make_unit(), make_unit(causal=True)}), ALL_FEATURES),
        target=Target(Platform("linux", "x86_64"), 13, parse_list(sass)),
        toolchain=ToolchainId(Version("13.0.88"), TOOLS),
        front_end="shared",
        native_digest="e" * 64,
        flags=nvcc_flags(parse_list(sass), front_end="shared", compress="size", options=OPTIONS),
    )
    return replace(recipe, **changes)


def make_compilation(name: str = "flash_fwd_hdim64_bf16_sm80", **changes: Any) -> Compilation:
    plain = Compilation(name, "upstream", f"src/{name}.cu", ("{cuda}/bin/nvcc", "-O3"), TOOLS, Unit.parse(name))
    return replace(plain, **changes)
