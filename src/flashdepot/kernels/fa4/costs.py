"""What FlashAttention-4's units are expected to cost."""

from __future__ import annotations

from flashdepot.kernels.fa4.units import HOPPER, passes
from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import Pass, Unit

_HOPPER_SECONDS = {Pass.FWD: 3.5, Pass.BWD: 2.0}
"""Mean CPU-seconds of 89 forward and 38 backward kernels for sm_90a, on two busy cores (2026-11)."""

_BLACKWELL_SECONDS = {Pass.FWD: 5.4, Pass.BWD: 4.6}
"""Mean CPU-seconds of 10 forward and 54 backward kernels for sm_100f and sm_110f, likewise."""

_IMPORTS = 0.9
"""CPU-seconds that each run of the worker takes before it compiles."""

_PEAK = 470 << 20
"""Bytes: the most that a worker held after 120 of them."""


def estimate(unit: Unit) -> Estimate:
    """The shipped expectation for a unit, which is compiled for one architecture."""
    arch, _ = passes()[unit.name]
    seconds = _HOPPER_SECONDS if arch == HOPPER else _BLACKWELL_SECONDS
    return Estimate(seconds[unit.pass_] + _IMPORTS, _PEAK)
