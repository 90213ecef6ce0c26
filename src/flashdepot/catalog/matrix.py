"""The compatibility table: wheels that differ by nothing but the Python version share a row."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from flashdepot.catalog.query import by_version, platform_words, python_of
from flashdepot.model.published_wheel import PublishedWheel


class MatrixRow(msgspec.Struct, frozen=True):
    """What one row's wheels have in common, and the wheels, oldest Python first, of each the newest release first.

    ``package`` is the version, with the distribution before it where that is not flash-attn.
    """

    package: str
    torch: str
    cuda: str
    cxx11_abi: str
    platform: str
    source: str
    seen: bool
    sass: tuple[str, ...]
    wheels: tuple[PublishedWheel, ...]


class Summary(msgspec.Struct, frozen=True):
    """One flash-attn version for one torch: everything that there is, in a line."""

    package: str
    torch: str
    cuda: tuple[str, ...]
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    sources: tuple[str, ...]
    wheels: int


def rows(wheels: Iterable[PublishedWheel]) -> list[MatrixRow]:
    """All rows: flash-attn first, of each distribution the newest version, torch and CUDA first."""
    groups: dict[tuple[object, ...], list[PublishedWheel]] = {}
    for wheel in wheels:
        key = (
            wheel.distribution,
            wheel.version,
            wheel.torch,
            wheel.cuda,
            wheel.cxx11_abi,
            platform_words(wheel),
            wheel.source,
            wheel.seen,
            wheel.sass,
        )
        groups.setdefault(key, []).append(wheel)
    return [_row(group) for group in _in_order(groups.values())]


def summaries(wheels: Iterable[PublishedWheel]) -> list[Summary]:
    """The table in short, in the same order."""
    groups: dict[tuple[str, str], list[MatrixRow]] = {}
    for row in rows(wheels):
        minor = ".".join(row.torch.split(".")[:2])
        groups.setdefault((row.package, minor), []).append(row)
    return [_summary(package, torch, group) for (package, torch), group in groups.items()]


def _row(group: list[PublishedWheel]) -> MatrixRow:
    wheel = group[0]
    package = wheel.version if wheel.distribution == "flash-attn" else f"{wheel.distribution} {wheel.version}"
    return MatrixRow(
        package=package,
        torch=wheel.torch,
        cuda=wheel.cuda,
        cxx11_abi={True: "new", False: "old", None: ""}[wheel.cxx11_abi],
        platform=platform_words(wheel),
        source=wheel.source,
        seen=wheel.seen,
        sass=wheel.sass,
        wheels=tuple(sorted(group, key=lambda w: (python_order(python_of(w)), _newest_release_first(w)))),
    )


def _in_order(groups: Iterable[list[PublishedWheel]]) -> list[list[PublishedWheel]]:
    """Sorted by what is least important first: each later sort leaves equal ones as they are."""
    ordered = sorted(
        groups, key=lambda g: (platform_words(g[0]), str(g[0].cxx11_abi), g[0].source, g[0].sass, g[0].seen)
    )
    ordered.sort(key=lambda g: tuple(map(by_version, (g[0].version, g[0].torch, g[0].cuda))), reverse=True)
    ordered.sort(key=lambda g: g[0].distribution)
    return ordered


def _summary(package: str, torch: str, group: list[MatrixRow]) -> Summary:
    wheels = [wheel for row in group for wheel in row.wheels]
    return Summary(
        package=package,
        torch=torch,
        cuda=tuple(sorted({row.cuda for row in group}, key=by_version)),
        pythons=tuple(sorted({python_of(wheel) for wheel in wheels}, key=python_order)),
        platforms=tuple(sorted({row.platform.partition(" (")[0] for row in group})),
        sources=tuple(sorted({row.source for row in group})),
        wheels=len(wheels),
    )


def _newest_release_first(wheel: PublishedWheel) -> tuple[list[int], str]:
    return [-int(number) for number in re.findall(r"\d+", release_name(wheel))], wheel.url


def python_order(label: str) -> tuple[int, int, str]:
    """What to sort labels such as ``3.9``, ``3.13``, ``3.13t`` and ``3.9+`` by: each kind by itself, in this order."""
    kind = {"t": 1, "+": 2}.get(label[-1:], 0)
    minor = label.partition(".")[2].rstrip("t+")
    return (kind, int(minor) if minor.isdecimal() else 0, label)


def in_ranges(labels: Iterable[str]) -> str:
    """Labels of Python versions in short: ``3.9-3.13 3.13t``."""
    words: list[tuple[str, str]] = []
    for label in labels:
        first, last = words[-1] if words else ("", "")
        kind, minor, _ = python_order(label)
        if last and (kind, minor - 1) == python_order(last)[:2]:
            words[-1] = (first, label)
        else:
            words.append((label, label))
    return " ".join(first if first == last else f"{first}-{last}" for first, last in words)


def release_name(wheel: PublishedWheel) -> str:
    """The folder of the wheel's URL, which on GitHub is the tag of the release."""
    return wheel.url.rpartition("/")[0].rpartition("/")[2]
