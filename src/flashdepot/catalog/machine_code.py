"""Which architectures a wheel has machine code for, as upstream's build scripts imply."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from packaging.version import Version

from flashdepot.facts import read_table
from flashdepot.model.wheel_name import WheelName

_TABLE = Path(__file__).parent / "machine_code.toml"

Sass = tuple[str, ...]


class _Build(msgspec.Struct, frozen=True):
    """What versions of a distribution are built for, by the oldest nvcc for which that holds; the newest nvcc first."""

    distribution: str
    first: Version
    last: Version
    sass: tuple[tuple[Version, Sass], ...]


def implied_sass(name: WheelName, *, official: bool) -> Sass:
    """The architectures, as nvcc numbers them (``("80", "90")``), or nothing where they are not known."""
    nvcc = _nvcc(name, official=official)
    version = Version(name.version)
    for build in _builds():
        if nvcc is not None and build.distribution == name.canonical and build.first <= version <= build.last:
            return next((sass for oldest, sass in build.sass if nvcc >= oldest), ())
    return ()


def _nvcc(name: WheelName, *, official: bool) -> Version | None:
    """The nvcc that built a wheel; a name that tells the major version alone says it for official wheels."""
    cuda = name.built_for.cuda
    if "." not in cuda:
        cuda = _official_nvcc().get(name.version, {}).get(cuda, "") if official else ""
    return Version(cuda) if cuda else None


@cache
def _builds() -> tuple[_Build, ...]:
    return tuple(
        _Build(
            row["distribution"],
            Version(row["first"]),
            Version(row["last"]),
            tuple(sorted(((Version(nvcc), tuple(sass)) for nvcc, sass in row["sass"].items()), reverse=True)),
        )
        for row in read_table(_TABLE)["build"]
    )


@cache
def _official_nvcc() -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = read_table(_TABLE)["official_nvcc"]
    return table
