"""On which systems published wheels were built, where their tags do not tell."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.facts import read_table
from flashdepot.model.target import Version
from flashdepot.model.wheel import version_key


class Builder(msgspec.Struct, frozen=True):
    """The system that made a wheel: it certainly runs with the GNU C library ``certain``, and never without ``needs``."""

    system: str
    certain: Version
    needs: Version


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_suffix(".toml"))


@cache
def builder_of(source: str, version: str) -> Builder:
    """Who built a wheel of a collection whose platform tag says nothing of its C library, as far as it is known."""
    row = next(
        row
        for row in _data()["builder"]
        if row["source"] in {source, ""} and (not row["before"] or version_key(version) < version_key(row["before"]))
    )
    return Builder(row["system"], Version(row["certain"]), Version(row["needs"]))


@cache
def is_preview(torch_minor: str, version: str) -> bool:
    """Whether an official wheel was built against a development version of the torch that it names."""
    return any(
        row["torch"] == torch_minor and version_key(row["first"]) <= version_key(version) <= version_key(row["last"])
        for row in _data()["preview"]
    )
