"""What compilations name: the folders and programs of one machine, by the names that actions have for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flashdepot.build.names import PlaceNames
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.toolchain.choose import Toolchain


def place_of(family: str) -> str:
    """The name of the folder of a family's source tree."""
    return "upstream" if family == DEFAULT_FAMILY else family


def places(sources: Mapping[str, Path], provided: Mapping[str, Path], toolchain: Toolchain) -> PlaceNames:
    """The folders of a machine that compilations name.

    :param sources: those of the trees by :func:`place_of`, of the C layer (``native``) and of the written header
        (``generated``).
    :param provided: what families provide.
    """
    nvcc, zig, front = toolchain.nvcc, toolchain.zig, toolchain.preprocessing
    trees = [(name, folder) for name, folder in sources.items() if name not in _OWN]
    return PlaceNames(
        (
            *trees,
            *provided.items(),
            *((name, sources[name]) for name in _OWN),
            *(("cuda_include", folder) for folder in nvcc.includes),
            ("cuda", nvcc.root),
            ("zig", zig.lib),
            *((("preprocessing", front.lib),) if front != zig else ()),
        )
    )


_OWN = ("native", "generated")


def programs(toolchain: Toolchain) -> dict[str, str]:
    """What else compilations name: the host compiler, and the toolkit's include folder as an argument."""
    zig = toolchain.zig
    preprocessor = str(toolchain.preprocessing.preprocessor)
    return {"zig_program": str(zig.program), "preprocessor": preprocessor, "cuda_include": str(toolchain.nvcc.include)}
