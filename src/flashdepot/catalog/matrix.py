"""Questions about wheels, and the compatibility table: wheels that differ by nothing but the Python version share a row."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from packaging.version import Version

from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.wheel import Interpreter, glibc_floor, platform_of, python_fits

_CPYTHON = re.compile(r"cp(\d)(\d+)(t?)", re.ASCII)


class Filter(msgspec.Struct, frozen=True):
    """What wheels must be. An empty field leaves it open.

    ``version``, ``torch`` and ``cuda`` mean what they spell, and what adds numbers to it: ``2.8`` is 2.8, 2.8.0 and
    2.8.3.post1, but ``2.8.3`` is not 2.8.3.post1. A wheel that names only the major version of CUDA is for all of it. Wheels for the stable ABI serve ``python`` as well.
    ``platform`` is a part of the platform tag: ``win``, ``aarch64``, ``manylinux_2_28_x86_64``.
    """

    version: str = ""
    torch: str = ""
    cuda: str = ""
    python: Interpreter | None = None
    platform: str = ""
    source: str = ""

    def accepts(self, wheel: PublishedWheel) -> bool:
        """Whether a wheel is what this asks for."""
        return (
            _is_or_within(wheel.version, self.version)
            and _is_or_within(wheel.torch, self.torch)
            and (_is_or_within(wheel.cuda, self.cuda) or wheel.cuda == self.cuda.partition(".")[0])
            and (self.python is None or serves(wheel, self.python))
            and self.platform in wheel.platform
            and self.source in {"", wheel.source}
        )


def serves(wheel: PublishedWheel, python: Interpreter) -> bool:
    """Whether a wheel's Python and ABI tags serve an interpreter, as :func:`python_fits` says of each pair."""
    tags = ((tag, abi) for tag in wheel.python.split(".") for abi in wheel.abi.split("."))
    return any(python_fits(tag, abi, python) for tag, abi in tags)


def python_of(wheel: PublishedWheel) -> str:
    """For which Python a wheel is, as people say it: ``3.12``, ``3.13t`` (free-threaded), ``3.9+`` (stable ABI)."""
    stable = "abi3" in wheel.abi.split(".")
    match = _CPYTHON.fullmatch(wheel.python if stable else wheel.abi)
    if match is None:
        return f"{wheel.python}-{wheel.abi}"
    return f"{match[1]}.{match[2]}{'+' if stable else match[3]}"


def platform_words(wheel: PublishedWheel) -> str:
    """System, processor and, where the tag tells, the oldest GNU libc: ``Linux x86-64, glibc 2.24``."""
    tags = wheel.platform.split(".")
    platform = platform_of(tags[0])
    if platform is None or platform.system not in {"linux", "windows"}:
        return wheel.platform
    floors = [floor for floor in map(glibc_floor, tags) if floor is not None]
    needs = f" (glibc {min(floors)})" if floors else ""
    return f"{platform.label}{needs}"


def package_words(wheel: PublishedWheel) -> str:
    """The version, after the distribution's name where that is not flash-attn."""
    return wheel.version if wheel.distribution == "flash-attn" else f"{wheel.distribution} {wheel.version}"


def abi_word(wheel: PublishedWheel) -> str:
    """Which C++ ABI it is for: ``new``, ``old``, or nothing where nobody knows."""
    return {True: "new", False: "old", None: ""}[wheel.cxx11_abi]


def by_version(text: str) -> Version:
    """What to sort versions by, those of CUDA and torch too; nothing comes before everything."""
    return Version(text or "0")


def _is_or_within(value: str, wanted: str) -> bool:
    return not wanted or value == wanted or (value.startswith(f"{wanted}.") and value[len(wanted) + 1].isdecimal())


Row = tuple[PublishedWheel, ...]
"""Wheels that differ in nothing but the Python, the oldest Python first, and of each Python the newest release first."""


class Summary(msgspec.Struct, frozen=True):
    """One flash-attn version, after the distribution where that is not flash-attn, for one torch: all that there is."""

    version: str
    python: tuple[str, ...]
    torch: str
    cuda: tuple[str, ...]
    platforms: tuple[str, ...]
    sources: tuple[str, ...]
    wheels: int


def rows(wheels: Iterable[PublishedWheel]) -> list[Row]:
    """All rows: flash-attn first, of each distribution the newest version, torch and CUDA first."""
    groups: dict[tuple[object, ...], list[PublishedWheel]] = {}
    for wheel in wheels:
        built = (wheel.distribution, wheel.version, wheel.torch, wheel.cuda, wheel.cxx11_abi, platform_words(wheel))
        groups.setdefault((*built, wheel.source, wheel.seen, wheel.sass), []).append(wheel)
    # Sorted by what is least important first: each later sort leaves equal ones as they are.
    ordered = sorted(
        groups.values(), key=lambda g: (platform_words(g[0]), str(g[0].cxx11_abi), g[0].source, g[0].sass, g[0].seen)
    )
    ordered.sort(key=lambda g: tuple(map(by_version, (g[0].version, g[0].torch, g[0].cuda))), reverse=True)
    ordered.sort(key=lambda g: g[0].distribution)
    return [tuple(sorted(group, key=lambda w: (python_order(python_of(w)), _newest_first(w)))) for group in ordered]


def summaries(wheels: Iterable[PublishedWheel]) -> list[Summary]:
    """The table in short, in the same order."""
    groups: dict[tuple[str, str], list[PublishedWheel]] = {}
    for row in rows(wheels):
        minor = ".".join(row[0].torch.split(".")[:2])
        groups.setdefault((package_words(row[0]), minor), []).extend(row)
    return [
        Summary(
            version=version,
            python=tuple(sorted({python_of(wheel) for wheel in group}, key=python_order)),
            torch=torch,
            cuda=tuple(sorted({wheel.cuda for wheel in group}, key=by_version)),
            platforms=tuple(sorted({platform_words(wheel).partition(" (")[0] for wheel in group})),
            sources=tuple(sorted({wheel.source for wheel in group})),
            wheels=len(group),
        )
        for (version, torch), group in groups.items()
    ]


def _newest_first(wheel: PublishedWheel) -> tuple[list[int], str]:
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
