"""A wheel that somebody has published, as far as it is known without fetching it."""

from __future__ import annotations

from typing import NamedTuple


class PublishedWheel(NamedTuple):
    """One published wheel: a tuple, since thousands are read and judged in a few milliseconds.

    ``distribution`` is the canonical name (``flash-attn``, ``flash-attn-3``), ``version`` the public version.
    ``cuda`` is the CUDA that the wheel was built for as far as its name tells, dotted: ``12.4``, or ``12`` where it
    names the major version alone, or empty. ``torch`` likewise: ``2.8``, ``2.6.0``, or empty. ``cxx11_abi`` is
    ``None`` where the name does not say. ``python``, ``abi`` and ``platform`` are the three parts of the wheel tag,
    compressed sets as spelled (PEP 425).

    ``source`` is the name of the collection. ``size`` in bytes is 0, and ``sha256`` empty, where nobody has told.
    ``seen`` says that the file was found to exist, and was not only computed from a release's build matrix. ``sass``
    are the architectures that a build of that version by that CUDA has machine code for, as nvcc numbers them
    (``("80", "90")``), empty where that is not known; ``ptx`` is the newest one it has PTX for, or empty.
    """

    distribution: str
    version: str
    cuda: str
    torch: str
    cxx11_abi: bool | None
    python: str
    abi: str
    platform: str
    source: str
    url: str
    size: int
    sha256: str
    seen: bool
    sass: tuple[str, ...]
    ptx: str
