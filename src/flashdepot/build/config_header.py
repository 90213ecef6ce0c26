"""``fa_config.h``: what a library holds, as macros that the C layer builds its tables from."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot import __version__
from flashdepot.build.native import FAMILIES
from flashdepot.model.architecture import Architecture
from flashdepot.model.selection import Feature, Pass, Selection
from flashdepot.model.target import Version
from flashdepot.model.upstream import UpstreamId
from flashdepot.upstream.quirks import dq_index_64_since, indexes_dq_with_64_bits

NAME = "fa_config.h"


def config_header(
    upstream: UpstreamId,
    selection: Selection,
    sass: Sequence[Architecture],
    cuda: Version,
    head_dims: Sequence[int],
    driver: Version,
) -> str:
    """The text of the header for one library.

    :param head_dims: those that the upstream tree has, selected or not, ascending.
    :param driver: the oldest driver that runs the library.
    """
    numbers = [*cuda.numbers, 0]
    lines = [
        "// Written by flashdepot for this one library.",
        "#pragma once",
        f'#define FA_CONFIG_FLASHDEPOT "{__version__}"',
        f"#define FA_CONFIG_CUDA {numbers[0] * 1000 + numbers[1] * 10}",
        f'#define FA_CONFIG_DRIVER "{driver}"',
        f"#define FA_CONFIG_FAMILIES(X) {' '.join(f'X({family})' for family in FAMILIES)}",
        f'#define FA2_CONFIG_UPSTREAM "{_c_string(upstream.version)}"',
        f"#define FA2_CONFIG_DQ_INDEX_BITS {64 if indexes_dq_with_64_bits(upstream.version) else 32}",
        f'#define FA2_CONFIG_DQ_INDEX_64_SINCE "{dq_index_64_since()}"',
        f"#define FA2_CONFIG_SASS {', '.join(str(a) for a in sass)}",
        f"#define FA2_CONFIG_HEAD_DIMS {', '.join(str(d) for d in sorted(head_dims))}",
        *(f"#define FA2_CONFIG_HAS_{f.value.upper()} {int(f in selection.features)}" for f in Feature),
    ]
    for pass_ in Pass:
        units = sorted(u for u in selection.units if u.pass_ is pass_)
        entries = [f"X({u.dtype}, {u.head_dim}, {str(u.causal).lower()})" for u in units]
        lines.append(" \\\n    ".join([f"#define FA2_CONFIG_{pass_.value.upper()}_UNITS(X)", *entries]))
    return "\n".join(lines) + "\n"


def _c_string(text: str) -> str:
    return "".join(c for c in text if c.isalnum() or c in "._+-")
