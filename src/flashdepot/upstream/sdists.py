"""The published sdists of flash-attn: their digests, and what each can compile."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.errors import UsageError
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.model.upstream import UpstreamId
from flashdepot.system.toml import read_toml
from flashdepot.upstream.tree import Identified

_DATA = Path(__file__).with_name("sdists.toml")


@dataclass(frozen=True)
class Sdist:
    """One published sdist: its file, and the units and features that are in it. ``size`` is in bytes."""

    project: str
    version: str
    filename: str
    sha256: str
    size: int
    units: frozenset[Unit]
    features: frozenset[Feature]

    @property
    def identified(self) -> Identified:
        """What a build needs to know of it before it is fetched."""
        return Identified(UpstreamId(self.version, self.sha256), self.units, self.features)


def known_versions() -> tuple[str, ...]:
    """Return the versions that can be named, newest last."""
    return tuple(_sdists())


def default_version() -> str:
    """Return the version that is used when none is named: the newest."""
    return known_versions()[-1]


def find_sdist(version: str) -> Sdist:
    """Look a published version up, by its exact name.

    :raises UsageError: for one that is not known; it lists those that are.
    """
    sdist = _sdists().get(version)
    if sdist is None:
        raise UsageError(
            f"'{version}' is neither a known version of flash-attn nor a folder: there are {', '.join(_sdists())}.",
            hint="Name one of them, a folder, or a commit: --upstream git+https://HOST/PATH@COMMIT",
        )
    return sdist


@cache
def _sdists() -> dict[str, Sdist]:
    data = read_toml(_DATA)
    return {entry["version"]: _parse(data["project"], entry) for entry in data["sdist"]}


def _parse(project: str, entry: dict[str, Any]) -> Sdist:
    dtypes = [Dtype(name) for name in entry["dtypes"]]
    units = frozenset(
        Unit(Pass(name), head_dim, dtype, causal)
        for name, head_dims in entry["head_dims"].items()
        for head_dim, dtype, causal in itertools.product(head_dims, dtypes, (False, True))
    )
    features = frozenset(Feature(name) for name in entry["features"])
    return Sdist(project, entry["version"], entry["filename"], entry["sha256"], entry["size"], units, features)
