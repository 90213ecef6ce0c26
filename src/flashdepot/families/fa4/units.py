"""FlashAttention-4's kernels as units: those of a pass are selected, and bring the ones that they need beside them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from flashdepot.families.fa4.targets import NAME
from flashdepot.families.fa4.variants import Variant, backward_variants, forward_variants
from flashdepot.model.selection import Dtype, Feature, Pass, Unit

_PASSES = {"fwd": Pass.FWD, "bwd": Pass.BWD}


def unit_of(variant: Variant) -> Unit:
    """The unit of a kernel that is a pass of attention by itself."""
    features = ((Feature.SOFTCAP, variant.softcap), (Feature.LOCAL, variant.mask == "local"))
    return Unit(
        NAME,
        _PASSES[variant.kernel],
        variant.head_dim,
        Dtype(variant.dtype),
        variant.mask == "causal",
        variant.name,
        frozenset(feature for feature, needed in features if needed),
    )


@cache
def units() -> frozenset[Unit]:
    """Every unit for Hopper."""
    return frozenset(unit_of(v) for v in _by_name().values() if v.kernel in _PASSES)


def variants_of(selected: Iterable[Unit]) -> tuple[Variant, ...]:
    """The kernels that take part in some units: theirs, and what prepares and finishes for a backward pass."""
    chosen = {_by_name()[unit.name] for unit in selected if unit.family == NAME}
    return tuple(sorted(chosen | {helper for variant in chosen for helper in _helpers(variant)}))


def _helpers(variant: Variant) -> Iterable[Variant]:
    if variant.kernel == "bwd":
        shared = (variant.head_dim, variant.dtype, variant.layout)
        yield Variant("pre", *shared, tile_m=variant.tiles[0])
        yield Variant("dq", *shared, tile_m=variant.tiles[0])
        if variant.several_heads:
            yield Variant("dkv", *shared)


@cache
def _by_name() -> dict[str, Variant]:
    return {variant.name: variant for variant in (*forward_variants(), *backward_variants())}
