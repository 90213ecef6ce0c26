"""What is asked of the resolver: the facts, and what somebody wants or allows."""

from __future__ import annotations

import msgspec

from flashdepot.model.candidate import Origin
from flashdepot.model.environment import Environment
from flashdepot.model.published_wheel import PublishedWheel

FLASH_ATTN = "flash-attn"
OURS = "ours"
"""The source of the wheels that flashdepot makes. They link neither torch nor CUDA's runtime library."""

PIP = "pip"
"""The source of a wheel that pip makes from upstream's sdist."""

MADE_HERE = frozenset({OURS, PIP})

INDEX = "index:"
"""What the source of a wheel begins with that is in an index of ours; the index's address follows."""

OFFICIAL = "official"
"""The collection of upstream's own releases."""

COMMUNITY = "community"
"""All collections of others; one alone is ``community:NAME``."""

DEFAULT_SOURCES = frozenset({OURS, OFFICIAL})

BANDWIDTH = 12.5e6
"""Bytes a second of a download where nobody says otherwise: a line of 100 Mbit/s."""


class WheelRequest(msgspec.Struct, frozen=True):
    """Which wheel is needed, and from whom it may come.

    ``version`` is empty for the newest FlashAttention-2, a version such as ``2.8.3`` or ``2.7``, or a PEP 440
    specifier such as ``>=2.7,<2.8``. ``sources`` are those that may be taken: ``ours``, ``official``, ``community``, ``community:NAME`` for one
    collection, ``pip`` for upstream's own source build, ``index:ADDRESS`` for an index of ours. ``allow_uncertain`` lets a candidate be taken of which it
    cannot be told whether it fits. ``bandwidth`` is in bytes a second.
    """

    facts: Environment
    distribution: str = FLASH_ATTN
    version: str = ""
    sources: frozenset[str] = DEFAULT_SOURCES
    allow_uncertain: bool = False
    bandwidth: float = BANDWIDTH

    def allows(self, wheel_source: str) -> bool:
        """Whether a published wheel of that collection may be taken."""
        if wheel_source in {*MADE_HERE, OFFICIAL} or wheel_source.startswith(INDEX):
            return wheel_source in self.sources
        return COMMUNITY in self.sources or f"{COMMUNITY}:{wheel_source}" in self.sources


def is_ours(source: str) -> bool:
    """Whether wheels of a source link neither torch nor CUDA's runtime, or are built for those that are there."""
    return source in MADE_HERE or source.startswith(INDEX)


def origin_of(wheel: PublishedWheel) -> Origin:
    """Whether a published wheel is of an index of ours, of upstream's own releases or of somebody else's collection."""
    if wheel.source.startswith(INDEX):
        return Origin.INDEX
    return Origin.OFFICIAL if wheel.source == OFFICIAL else Origin.COMMUNITY
