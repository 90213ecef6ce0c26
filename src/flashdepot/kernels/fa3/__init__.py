"""FlashAttention-3: upstream's kernels for Hopper, of which those are compiled that no other family has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from flashdepot.kernels.fa3 import units
from flashdepot.kernels.fa3.sources import SOURCE_DIR, Fa3Layout, licences, published
from flashdepot.kernels.family import Family
from flashdepot.model.target import Architecture
from flashdepot.upstream import Sources

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles
    from flashdepot.model.recipe import Estimate
    from flashdepot.model.selection import Feature, Unit


class Fa3(Family):
    """The family ``fa3``: FP8, and absorbed multi-head latent attention."""

    name = units.NAME
    title = "FlashAttention-3"
    oldest_gpu = Architecture(9, 0)
    """Hopper: the kernels use its tensor memory accelerator and warp group products."""
    is_usual = False
    """Its 18 sources take 45 CPU-minutes, and serve two kinds of call only."""
    sources = Sources(Fa3Layout(), published)
    c_layer_words = ("-I{native}", f"-I{{{units.NAME}}}/{SOURCE_DIR}", *units.NAMES)
    """Its folder of the C layer includes upstream's block of parameters and table of tiles."""

    def lacks(self, gpu: Architecture) -> str:
        """Every GPU but Hopper's."""
        if units.HOPPER.runs_on(gpu):
            return ""
        return f"has kernels for compute capability 9.0 only, and not for {gpu.dotted}"

    def runs(self, unit: Unit, gpu: Architecture) -> bool:
        """Whether it is a Hopper."""
        return unit.family == self.name and units.HOPPER.runs_on(gpu)

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts of flash-attention and of the CUTLASS in the tree."""
        return licences(files)

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int, front_end: str) -> Estimate:  # noqa: ARG002
        """What a unit is expected to cost, by what was measured."""
        return units.estimate()

    def full(self) -> Iterable[Unit]:
        """Every unit."""
        return units.units()
