"""Values that the shell completes after TAB."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def one_of(known: Callable[[], Iterable[str]]) -> Complete:
    """Complete a value; ``known`` is called only when somebody presses TAB."""
    return lambda _context, _parameter, begun: [word for word in known() if word.startswith(begun)]


def some_of(known: Callable[[], Iterable[str]]) -> Complete:
    """Complete the last word of a list that is joined by commas, with one that it does not have yet."""

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        had = before.split(",")
        return [f"{before}{comma}{word}" for word in known() if word.startswith(last) and word not in had]

    return complete


def profiles() -> list[str]:
    """Names of selections."""
    from flashdepot.model.selection import PROFILES  # noqa: PLC0415

    return list(PROFILES)


def passes() -> list[str]:
    """Passes of kernels."""
    from flashdepot.model.selection import Pass  # noqa: PLC0415

    return [member.value for member in Pass]


def dtypes() -> list[str]:
    """Element types of kernels."""
    from flashdepot.model.selection import Dtype  # noqa: PLC0415

    return [member.value for member in Dtype]


def features() -> list[str]:
    """Features of kernels."""
    from flashdepot.model.selection import Feature  # noqa: PLC0415

    return [*(member.value for member in Feature), "none", "all"]


def families() -> list[str]:
    """Families of kernels."""
    from flashdepot.families import ALL, FAMILIES  # noqa: PLC0415

    return [*(family.name for family in FAMILIES), ALL]


def head_dims() -> list[str]:
    """Head dims that the default family compiles."""
    from flashdepot.families import default_family  # noqa: PLC0415

    return [str(dim) for dim in sorted({unit.head_dim for unit in default_family().full()})]


def upstreams() -> list[str]:
    """Published versions, the newest first."""
    from flashdepot.families import default_family  # noqa: PLC0415

    return list(default_family().sources.known_versions())


def architectures() -> list[str]:
    """Compute capabilities that kernels run on, and the words for several."""
    from flashdepot.facts.gpus import known_architectures  # noqa: PLC0415
    from flashdepot.families import oldest_gpu  # noqa: PLC0415

    known = (row.architecture for row in known_architectures())
    return ["native", "universal", "list", *(str(one) for one in known if one >= oldest_gpu())]


def targets() -> list[str]:
    """Systems that libraries are built for."""
    from flashdepot.targets import TARGETS  # noqa: PLC0415

    return [str(row) for row in TARGETS]


def candle_versions() -> list[str]:
    """The versions of candle-flash-attn that are served."""
    from flashdepot.link.candle_sources import CRATE  # noqa: PLC0415
    from flashdepot.link.candle_versions import known_lines  # noqa: PLC0415

    served = (line for line in known_lines() if line.crate == CRATE and line.is_served)
    return [version for line in served for version in line.versions]
