"""FlashAttention-4's kernels as units: those of a pass are selected, and bring the ones that they need beside them."""

from __future__ import annotations

from functools import cache

from flashdepot.families.fa4.kernels import HOPPER, passes, unit_name
from flashdepot.families.fa4.targets import NAME
from flashdepot.families.fa4.variants import Variant
from flashdepot.model.selection import Dtype, Feature, Pass, Unit

_PASSES = {"fwd": Pass.FWD, "bwd": Pass.BWD}


def unit_of(variant: Variant, arch: str = HOPPER) -> Unit:
    """The unit of a kernel that is a pass of attention by itself."""
    features = ((Feature.SOFTCAP, variant.softcap), (Feature.LOCAL, variant.mask == "local"))
    return Unit(
        NAME,
        _PASSES[variant.kernel],
        variant.head_dim,
        Dtype(variant.dtype),
        variant.mask == "causal",
        unit_name(arch, variant),
        frozenset(feature for feature, needed in features if needed),
    )


@cache
def units() -> frozenset[Unit]:
    """Every unit, each for the GPUs of one architecture."""
    return frozenset(unit_of(variant, arch) for arch, variant in passes().values())
