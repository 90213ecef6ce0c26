"""Rules about what was asked for: the distribution, its version, and from whom."""

from __future__ import annotations

from functools import lru_cache

from flashdepot.errors import UsageError
from flashdepot.model.verdict import Reason
from flashdepot.model.wheel_request import COMMUNITY, FLASH_ATTN, MADE_HERE, OFFICIAL, WheelRequest


def judge_distribution(request: WheelRequest, distribution: str) -> Reason | None:
    """flash-attn and flash-attn-3 have other modules and other functions."""
    if distribution == request.distribution:
        return None
    text = f"It is {distribution}, and {request.distribution} was asked for."
    return Reason.misfit("distribution", distribution, request.distribution, text, f"--distribution {distribution}")


def judge_version(request: WheelRequest, distribution: str, version: str) -> Reason | None:
    """The version that was asked for; version 1 of flash-attn has another interface and is taken by name alone."""
    if not request.version:
        if distribution != FLASH_ATTN or not version.startswith("1."):
            return None
        text = f"It is {distribution} {version}; version 2 is taken where none is named."
        return Reason.misfit("version", version, "2.x", text, f"--version {version}")
    if matches(request.version, version):
        return None
    text = f"It is {distribution} {version}, and {request.version} was asked for."
    return Reason.misfit("version", version, request.version, text, f"--version {version}")


def judge_source(request: WheelRequest, source: str) -> Reason | None:
    """Wheels of others than upstream are taken only by those who name them."""
    if request.allows(source):
        return None
    text = f"It is of the collection {source}, which was not allowed."
    of_others = source not in {*MADE_HERE, OFFICIAL}
    mend = f"--allow {COMMUNITY}, or only this collection: --source {COMMUNITY}:{source}"
    allowed = ", ".join(sorted(request.sources))
    return Reason.misfit("source", source, allowed, text, mend if of_others else f"--source {source}")


@lru_cache(maxsize=1024)
def matches(asked: str, version: str) -> bool:
    """Whether a version is one that was asked for.

    ``2.8.3`` is that one alone, ``2.8`` all that begin with it, anything with an operator a PEP 440 specifier.

    :raises UsageError: when what was asked for is neither.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415  (most ask for no version)

    plain = asked[:1].isdecimal()
    release = asked.removesuffix(".*")
    short = plain and release.replace(".", "").isdecimal() and release.count(".") < 2  # noqa: PLR2004
    try:
        specifier = SpecifierSet(f"=={release}.*" if short else f"=={asked}" if plain else asked)
    except InvalidSpecifier:
        raise UsageError(
            f"'{asked}' is not a version: expected one such as 2.8.3, 2.8, or '>=2.7,<2.8'.",
            hint="'flashdepot resolve' without --version takes the newest that fits.",
        ) from None
    return specifier.contains(version, prereleases=True)
