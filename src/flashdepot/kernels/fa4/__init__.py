"""FlashAttention-4: kernels for Hopper and Blackwell, compiled ahead of time from CuTe DSL."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.events import Fetch
from flashdepot.kernels.fa4 import units
from flashdepot.kernels.fa4.sources import Fa4Layout, published
from flashdepot.kernels.fa4.units import HOSTS, PYTHONS, SASS, TESTED, code_for
from flashdepot.kernels.family import Family
from flashdepot.model.target import Architecture
from flashdepot.upstream import Sources

if TYPE_CHECKING:
    from flashdepot.events import OnFile
    from flashdepot.files.directory import PlainFiles
    from flashdepot.model.recipe import Estimate
    from flashdepot.model.selection import Feature, Unit
    from flashdepot.model.target import Platform


class Fa4(Family):
    """The family ``fa4``."""

    name = units.NAME
    title = "FlashAttention-4"
    oldest_gpu = Architecture(9, 0)
    """Hopper: the kernels use its tensor memory accelerator and warp group products."""
    sources = Sources(Fa4Layout(), published)
    needs_nvcc = False
    c_layer_words = ("-I{native}",)
    """Its objects call functions that stand on the run time over the driver."""

    def lacks(self, gpu: Architecture) -> str:
        """Every GPU without kernels here."""
        if not code_for(gpu):
            return f"has kernels for compute capability {', '.join(a.dotted for a in SASS)}, and not for {gpu.dotted}"
        return ""

    def runs(self, unit: Unit, gpu: Architecture) -> bool:
        """Whether a unit was built for this GPU: each is for those of one architecture."""
        return unit.family == self.name and units.passes()[unit.name][0] == code_for(gpu)

    def is_tested(self, gpu: Architecture) -> bool:
        """On those of :data:`TESTED`."""
        return Architecture(gpu.major, gpu.minor) in TESTED

    def compiles_here(self, platform: Platform) -> bool:
        """Where PyPI has CuTe DSL for the system and the Python."""
        return str(platform) in HOSTS and sys.implementation.name == "cpython" and sys.version_info[:2] in PYTHONS

    def provide(self, platform: Platform, folder: Path, on_file: OnFile) -> Mapping[str, Path]:
        """CuTe DSL, the Python that runs it, and the compile worker."""
        from flashdepot.kernels.fa4.actions import WORKER  # noqa: PLC0415
        from flashdepot.toolchain.wheels import pinned_dsl, running_python  # noqa: PLC0415

        dsl = pinned_dsl(platform, running_python()).provide(folder, on_file)
        return {"cute_dsl": dsl, "python": Path(sys.executable), "fa4_worker": WORKER}

    def to_fetch(self, platform: Platform, folder: Path) -> Iterable[Fetch]:
        """CuTe DSL, unless the depot has it."""
        from flashdepot.toolchain.wheels import DSL_SIZE, DSL_UNPACKED, pinned_dsl, running_python  # noqa: PLC0415

        there = pinned_dsl(platform, running_python()).is_there(folder)
        return () if there else (Fetch("CuTe DSL", DSL_SIZE, DSL_UNPACKED),)

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The text of flash-attn-4; CuTe DSL leaves nothing of itself in what it compiles."""
        return {"flash-attn-4": files.text("LICENSE")}

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int) -> Estimate:  # noqa: ARG002
        """What a unit is expected to cost, by what was measured."""
        return units.estimate(unit)

    def full(self) -> Iterable[Unit]:
        """Every unit."""
        return units.units()
