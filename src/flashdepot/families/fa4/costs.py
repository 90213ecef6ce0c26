"""What FlashAttention-4's units are expected to cost."""

from __future__ import annotations

from flashdepot.families.fa4.targets import SASS
from flashdepot.model.action import Estimate
from flashdepot.model.selection import Pass, Unit

_SECONDS = {Pass.FWD: 3.5, Pass.BWD: 2.0}
"""Mean CPU-seconds of 89 forward and 38 backward kernels for sm_90a, on two busy cores (2026-11)."""

_IMPORTS = 0.9
"""CPU-seconds that each run of the worker takes before it compiles."""

_PEAK = 470 << 20
"""Bytes: the most that a worker held after 120 of them."""


def estimate(unit: Unit, architectures: int) -> Estimate:
    """The shipped expectation for a unit, for a number of architectures that it is compiled for."""
    return Estimate((_SECONDS[unit.pass_] + _IMPORTS) * min(architectures, len(SASS)), _PEAK)
