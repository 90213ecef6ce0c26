"""The published sdists of flash-attn: their digests, and what each can compile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.facts import read_table
from flashdepot.families.fa2.units import make_unit
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.upstream.published import Sdist

DATA = Path(__file__).with_name("sdists.toml")


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    data = read_table(DATA)
    return {entry["version"]: _parse(data["project"], entry) for entry in data["sdist"]}


def _parse(project: str, entry: Mapping[str, Any]) -> Sdist:
    head_dims = tuple((name, tuple(values)) for name, values in entry["head_dims"].items())
    return Sdist(
        project,
        entry["version"],
        entry["filename"],
        entry["sha256"],
        entry["size"],
        entry["tree"],
        _units(head_dims, tuple(entry["dtypes"])),
        frozenset(Feature(name) for name in entry["features"]),
    )


@cache  # of two versions that follow each other, most have the same
def _units(head_dims: tuple[tuple[str, tuple[int, ...]], ...], dtypes: tuple[str, ...]) -> frozenset[Unit]:
    return frozenset(
        make_unit(Pass(name), head_dim, Dtype(dtype), causal=causal)
        for name, values in head_dims
        for head_dim, dtype, causal in itertools.product(values, dtypes, (False, True))
    )
