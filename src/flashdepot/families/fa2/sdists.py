"""The published sdists of flash-attn: their digests, and what each can compile."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.families.fa2.units import make_unit
from flashdepot.model.selection import Dtype, Feature, Pass
from flashdepot.system.toml import read_toml
from flashdepot.upstream.published import Sdist

DATA = Path(__file__).with_name("sdists.toml")


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    data = read_toml(DATA)
    return {entry["version"]: _parse(data["project"], entry) for entry in data["sdist"]}


def _parse(project: str, entry: Mapping[str, Any]) -> Sdist:
    dtypes = [Dtype(name) for name in entry["dtypes"]]
    units = frozenset(
        make_unit(Pass(name), head_dim, dtype, causal=causal)
        for name, head_dims in entry["head_dims"].items()
        for head_dim, dtype, causal in itertools.product(head_dims, dtypes, (False, True))
    )
    features = frozenset(Feature(name) for name in entry["features"])
    return Sdist(
        project,
        entry["version"],
        entry["filename"],
        entry["sha256"],
        entry["size"],
        entry["tree"],
        units,
        features,
    )
