"""``fa2_config.h``: what a library holds, as macros that the C layer builds its tables from."""

from __future__ import annotations

from collections.abc import Iterable

from flashdepot import __version__
from flashdepot.model.recipe import Recipe

NAME = "fa2_config.h"


def config_header(recipe: Recipe, lines: Iterable[str]) -> str:
    """The text of the header for one library.

    :param lines: those of its families.
    """
    numbers = [*recipe.toolchain.cuda.numbers, 0]
    head = [
        "// Written by flashdepot for this one library.",
        "#pragma once",
        f'#define FA2_CONFIG_UPSTREAM "{_c_string(recipe.upstream.version)}"',
        f'#define FA2_CONFIG_FLASHDEPOT "{__version__}"',
        f"#define FA2_CONFIG_CUDA {numbers[0] * 1000 + numbers[1] * 10}",
        f"#define FA2_CONFIG_SASS {', '.join(str(a) for a in recipe.target.sass)}",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _c_string(text: str) -> str:
    return "".join(c for c in text if c.isalnum() or c in "._+-")
