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


def msvc_limits(release: Version) -> tuple[int | None, int | None]:
    """The oldest ``_MSC_VER`` that a CUDA release accepts and the first that is too new; ``None`` before the table."""
    rows = [row for row in _data()["msvc"] if Version.parse(row["cuda"]) <= release]
    return (rows[-1]["first"], rows[-1]["limit"]) if rows else (None, None)


def installable_msvc(limit: int) -> str:
    """The newest toolset below a limit of ``_MSC_VER``, by its name in the Visual Studio Installer."""
    fitting = [row for row in _data()["msvc_toolset"] if row["msc_ver"] < limit]
    return str(fitting[-1]["name"]) if fitting else BUILD_TOOLS


def needs_conforming_preprocessor(release: Version) -> bool:
    """Whether the headers of a CUDA release want ``cl`` to be given ``/Zc:preprocessor``."""
    return release >= Version.parse(_data()["conforming_preprocessor"])
