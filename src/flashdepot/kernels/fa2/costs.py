"""What FlashAttention-2's units are expected to cost, from shipped measurements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from flashdepot.kernels.fa2.units import parse_unit
from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import ALL_FEATURES, Feature, Unit

_GB = 10**9

_FIXED_SECONDS = 25.0
"""What every unit pays for its templates before the first kernel instance."""

_LEFT_OUT = 0.7
"""A feature that is left out takes this share of the rest with it (five left out: 128 s became 44 s)."""

_MORE_ARCHITECTURES = 0.22
"""What one more ``ptxas`` run costs, as a share of the unit with one architecture."""

_UNKNOWN = Estimate(200.0, 7 * _GB)


@cache
def measured() -> Mapping[Unit, Estimate]:
    """``unit_costs.csv``: all features, one architecture, nvcc 13.0.88, flash-attn 2.8.3.post2, 16-core machine."""
    _, *lines = Path(__file__).with_name("unit_costs.csv").read_text(encoding="utf-8").splitlines()
    return {
        unit: Estimate(float(seconds), int(float(gigabytes) * _GB))
        for name, seconds, gigabytes, _ in (line.split(",") for line in lines)
        if (unit := parse_unit(f"{name}_sm80"))
    }


def estimate(unit: Unit, features: frozenset[Feature], architectures: int, front_end: str) -> Estimate:
    """The shipped expectation for a unit with some features, for a number of architectures."""
    known = measured().get(unit) or _nearest(unit)
    kernels = max(0.0, known.seconds - _FIXED_SECONDS) * _LEFT_OUT ** len(ALL_FEATURES - features)
    factor = 1 + (architectures - 1) * (_MORE_ARCHITECTURES if front_end == "shared" else 1.0)
    return Estimate((_FIXED_SECONDS + kernels) * factor, known.peak)


def _nearest(unit: Unit) -> Estimate:
    """A unit that was never measured (head dim 160): the next larger head dim of the same kind."""
    larger = [
        (other.head_dim, estimate)
        for other, estimate in measured().items()
        if (other.pass_, other.dtype, other.causal) == (unit.pass_, unit.dtype, unit.causal)
        and other.head_dim >= unit.head_dim
    ]
    return min(larger, key=lambda pair: pair[0])[1] if larger else _UNKNOWN
