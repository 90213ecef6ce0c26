"""Recipes and compilations for tests."""

import re
from typing import Any

from msgspec.structs import replace

from flashdepot.kernels import family_of, oldest_gpu
from flashdepot.kernels.actions import Compilers, c_layer_actions, c_layer_flags
from flashdepot.kernels.fa2 import make_unit as fa2_unit
from flashdepot.kernels.fa2 import parse_unit
from flashdepot.model.recipe import Action, Recipe, Tool, ToolchainId, UpstreamId
from flashdepot.model.selection import ALL_FEATURES, Dtype, Pass, Selection, Unit
from flashdepot.model.target import Architecture, Platform, Target, Version
from flashdepot.toolchain.nvcc import VARIABLES
from flashdepot.toolchain.targets import TARGETS
from flashdepot.upstream import Identified

TOOLS = (Tool("nvcc", "13.0.88", "a" * 64), Tool("cicc", "13.0.88", "b" * 64), Tool("zig", "0.14.1", "c" * 64))
OPTIONS = frozenset({"--objdir-as-tempdir", "--frandom-seed", "--compress-mode", "--static-global-template-stub"})
COMPILERS = Compilers(Version("13.0.88"), OPTIONS, TARGETS[0], TOOLS[:-1], TOOLS[-1])


def architectures(text: str) -> tuple[Architecture, ...]:
    """``80,90`` or ``80 90``, sorted."""
    return tuple(sorted(map(Architecture.parse, re.split("[, ]+", text))))


def make_unit(**changes: Any) -> Unit:
    return fa2_unit(**{"pass_": Pass.FWD, "head_dim": 64, "dtype": Dtype.BF16, "causal": False} | changes)


def make_flags(compilers: Compilers, sass: str = "80,90") -> dict[str, tuple[str, ...]]:
    listed = architectures(sass)
    own = c_layer_flags(compilers, listed, {"fa2": oldest_gpu()}, compress="size")
    return {"fa2": family_of("fa2").compiler.flags(compilers, listed, compress="size"), **own}


def make_recipe(sass: str = "80,90", **changes: Any) -> Recipe:
    recipe = Recipe(
        upstreams={"fa2": UpstreamId("2.8.3.post2", "d" * 64)},
        selection=Selection(frozenset({make_unit(), make_unit(causal=True)}), ALL_FEATURES),
        target=Target(Platform("linux", "x86_64"), 13, architectures(sass), Version("580")),
        toolchain=ToolchainId(Version("13.0.88"), TOOLS),
        native_digest="e" * 64,
        flags=make_flags(COMPILERS, sass),
    )
    return replace(recipe, **changes)


def make_action(name: str = "flash_fwd_hdim64_bf16_sm80", **changes: Any) -> Action:
    arguments = ("{cuda}/bin/nvcc", "-O3")
    plain = Action(name, "upstream", f"src/{name}.cu", arguments, TOOLS, VARIABLES, parse_unit(name))
    return replace(plain, **changes)


def fa2_actions(recipe: Recipe, compilers: Compilers = COMPILERS) -> tuple[Action, ...]:
    source = Identified(recipe.upstream, recipe.selection.units, ALL_FEATURES)
    own = c_layer_actions(recipe, compilers, {"fa2": family_of("fa2").c_layer_words})
    return (*family_of("fa2").compiler.actions(recipe, source, compilers), *own)
