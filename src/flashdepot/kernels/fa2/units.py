"""The translation units of FlashAttention-2, a file of upstream's each: their names, and what each is expected to cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import ALL_FEATURES, Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture

NAME = "fa2"

OLDEST = Architecture(8, 0)
"""Ampere: the kernels use ``cp.async`` and its tensor-core shapes."""

NAMESPACE = "flashdepot_fa2"
"""The C++ namespace of the kernels: ours, so that another FlashAttention in the same process never meets them."""

NAMESPACE_MACRO = f"-DFLASH_NAMESPACE={NAMESPACE}"

_FILE_PASS = {"fwd": Pass.FWD, "fwd_split": Pass.SPLITKV, "bwd": Pass.BWD}
_PASS_FILE = {p: name for name, p in _FILE_PASS.items()}
_FILE = r"flash_(fwd_split|fwd|bwd)_hdim(\d+)_(bf16|fp16)(_causal)?_sm80"

_GB = 10**9

_FIXED_SECONDS = 25.0
"""What every unit pays for its templates before the first kernel instance."""

_LEFT_OUT = 0.7
"""A feature that is left out takes this share of the rest with it (five left out: 128 s became 44 s)."""

_MORE_ARCHITECTURES = 0.22
"""What one more ``ptxas`` run costs, as a share of the unit with one architecture."""

_UNKNOWN = Estimate(200.0, 7 * _GB)


def make_unit(pass_: Pass, head_dim: int, dtype: Dtype, *, causal: bool) -> Unit:
    """The unit with all kernels of one pass, head dim, dtype and causality, under the name of upstream's file."""
    name = f"flash_{_PASS_FILE[pass_]}_hdim{head_dim}_{dtype}{'_causal' if causal else ''}_sm80"
    return Unit(NAME, pass_, head_dim, dtype, causal, name)


def parse_unit(name: str) -> Unit | None:
    """The unit of an upstream file name such as ``flash_fwd_hdim64_bf16_causal_sm80``; ``None`` for another name."""
    match = re.fullmatch(_FILE, name)
    if match is None:
        return None
    return make_unit(_FILE_PASS[match[1]], int(match[2]), Dtype(match[3]), causal=bool(match[4]))


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
    """The shipped expectation for a unit with some features, for a number of architectures.

    One that was never measured (head dim 160) is taken for the next larger head dim of its kind.
    """
    kind = (unit.pass_, unit.dtype, unit.causal)
    alike = {u.head_dim: cost for u, cost in measured().items() if (u.pass_, u.dtype, u.causal) == kind}
    head_dim = min((other for other in alike if other >= unit.head_dim), default=0)
    known = alike.get(head_dim, _UNKNOWN)
    kernels = max(0.0, known.seconds - _FIXED_SECONDS) * _LEFT_OUT ** len(ALL_FEATURES - features)
    factor = 1 + (architectures - 1) * (_MORE_ARCHITECTURES if front_end == "shared" else 1.0)
    return Estimate((_FIXED_SECONDS + kernels) * factor, known.peak)
