"""``fa_config.h``: what a library holds, as macros that the C layer builds its tables from."""

from __future__ import annotations

from collections.abc import Iterable

from flashdepot import __version__
from flashdepot.model.recipe import Recipe

NAME = "fa_config.h"


def config_header(recipe: Recipe, lines: Iterable[str]) -> str:
    """The text of the header for one library; ``lines`` are those of its families."""
    numbers = [*recipe.toolchain.cuda.numbers, 0]
    head = [
        "// Written by flashdepot for this one library.",
        "#pragma once",
        f'#define FA_CONFIG_FLASHDEPOT "{__version__}"',
        f"#define FA_CONFIG_CUDA {numbers[0] * 1000 + numbers[1] * 10}",
        f'#define FA_CONFIG_DRIVER "{recipe.target.driver_floor}"',
        # The newest first: it is the best where it can do a problem at all.
        f"#define FA_CONFIG_FAMILIES(X) {' '.join(f'X({family})' for family in sorted(recipe.upstreams, reverse=True))}",
    ]
    return "\n".join([*head, *lines]) + "\n"


def c_string(text: str) -> str:
    """A text without what could end a string of C."""
    return "".join(c for c in text if c.isalnum() or c in "._+-")
