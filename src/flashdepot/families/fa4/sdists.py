"""The published sdists of flash-attn-4, and what the compile worker makes of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from flashdepot.facts import read_table
from flashdepot.families.fa4.layout import FEATURES
from flashdepot.families.fa4.units import units
from flashdepot.upstream.published import Sdist

DATA = Path(__file__).with_name("sdists.toml")


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    data = read_table(DATA)
    kernels = units()
    return {
        entry["version"]: Sdist(
            data["project"],
            entry["version"],
            entry["filename"],
            entry["sha256"],
            entry["size"],
            entry["tree"],
            kernels,
            FEATURES,
        )
        for entry in data["sdist"]
    }
