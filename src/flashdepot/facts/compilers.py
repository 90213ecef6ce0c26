"""Host compilers that CUDA releases accept."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.facts import read_table
from flashdepot.model.target import Version


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_suffix(".toml"))


def host_compiler_limits(release: Version) -> tuple[int | None, int | None]:
    """The newest GCC and Clang (major versions) that a CUDA release accepts; ``None`` for a release before the table."""
    rows = [row for row in _data()["host_compiler"] if Version.parse(row["cuda"]) <= release]
    return (rows[-1]["gcc"], rows[-1]["clang"]) if rows else (None, None)


BUILD_TOOLS = (
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)
"""The command that installs Microsoft's compiler, its libraries and a Windows SDK without the rest."""


def needs_conforming_preprocessor(release: Version) -> bool:
    """Whether the headers of a CUDA release want ``cl`` to be given ``/Zc:preprocessor``."""
    return release >= Version.parse(_data()["conforming_preprocessor"])
