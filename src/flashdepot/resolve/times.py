"""How long it takes until flash_attn can be imported, by what a candidate is."""

from __future__ import annotations

from functools import cache

from flashdepot.build.schedule import Capacity, Job, Outlook, c_layer, foresee, link_seconds
from flashdepot.host.surroundings import crowding
from flashdepot.kernels import family_of
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.selection import Selection

_MEGABYTE = 10**6

_BYTES_AN_ARCHITECTURE = 60 * _MEGABYTE
"""Of a published wheel: 117 MB with code for two architectures, 242 to 254 MB for four (GitHub's listing, 2.8.3)."""

_BYTES_UNKNOWN = 250 * _MEGABYTE

BANDWIDTH = 12.5e6
"""Bytes a second of a download: a line of 100 Mbit/s."""

_INSTALLER_START = 0.5
_INSTALL_RATE = 80 * _MEGABYTE
"""Bytes a second: pip took 1.1 to 1.3 s, uv 0.4 to 0.7 s for vllm_flash_attn-2.6.2 of 76 MB on 2 cores, 2026-11-21."""

_PACK_RATE = 40 * _MEGABYTE
"""Bytes a second of a library that go into our wheel: 67 MB/s are compressed on 2 cores (2026-11-21), then
hashed, written and read again."""

_TOOLS = 196 * _MEGABYTE
"""Bytes of upstream's source, NVIDIA's compiler and zig from PyPI."""


def size_of(wheel: PublishedWheel) -> int:
    """Bytes of a published wheel: as listed, else as its number of architectures lets expect."""
    return wheel.size or len(wheel.sass) * _BYTES_AN_ARCHITECTURE or _BYTES_UNKNOWN


def fetch_seconds(size: int) -> float:
    """To download so many bytes and install them."""
    return size / BANDWIDTH + install_seconds(size)


def install_seconds(size: int) -> float:
    """To install a wheel of so many bytes."""
    return _INSTALLER_START + size / _INSTALL_RATE


def pack_seconds(size: int) -> float:
    """To make a wheel of a library of so many bytes, and install it."""
    return size / _PACK_RATE + install_seconds(size)


@cache  # asked again for each torch that might help
def build_seconds(selection: Selection, architectures: int, capacity: Capacity) -> float:
    """To fetch source and compilers, to compile, link and install a selection."""
    outlook = foresee(usual_jobs(selection, architectures), (), capacity)
    return _TOOLS / BANDWIDTH + making_seconds(outlook, len(selection.units)) + install_seconds(0)


def making_seconds(outlook: Outlook, units: int, *, is_here: bool = True) -> float:
    """To compile, on this machine where two compilers may share a core, and link so many units."""
    return outlook.seconds * (crowding(outlook.at_once) if is_here else 1.0) + link_seconds(units)


def usual_jobs(selection: Selection, architectures: int) -> list[Job]:
    """What compiling each unit of a selection and our C layer usually costs; a unit's estimate has its host side in it."""
    jobs = []
    for unit in selection.units:
        cost = family_of(unit.family).estimate(unit, selection.features, architectures)
        jobs.append(Job(unit.name, cost.seconds, cost.peak))
    return [*jobs, *c_layer()]
