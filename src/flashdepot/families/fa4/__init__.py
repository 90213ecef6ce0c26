"""FlashAttention-4: kernels for Hopper and Blackwell, compiled ahead of time from CuTe DSL."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from flashdepot.events import OnFile
from flashdepot.families.fa4 import actions
from flashdepot.families.fa4.costs import estimate
from flashdepot.families.fa4.layout import Fa4Layout
from flashdepot.families.fa4.units import NAME, units
from flashdepot.families.family import Kit
from flashdepot.model.action import Action, Estimate
from flashdepot.model.architecture import Architecture
from flashdepot.model.recipe import Recipe
from flashdepot.model.selection import Feature, Selection, Unit
from flashdepot.model.target import Platform
from flashdepot.system.toml import read_toml
from flashdepot.toolchain import cute_dsl
from flashdepot.upstream import Identified, Sources
from flashdepot.upstream.published import Sdist


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    data = read_toml(Path(__file__).with_name("sdists.toml"))
    features = Fa4Layout().features(Path())
    return {
        entry["version"]: Sdist(
            data["project"],
            entry["version"],
            entry["filename"],
            entry["sha256"],
            entry["size"],
            entry["tree"],
            units(),
            features,
        )
        for entry in data["sdist"]
    }


class Fa4:
    """The family ``fa4``."""

    name = NAME
    title = "FlashAttention-4"
    oldest_gpu = Architecture(9, 0)
    """Hopper: the kernels use its tensor memory accelerator and warp group products."""
    sources = Sources(Fa4Layout(), published)

    def provide(self, platform: Platform, folder: Path, on_file: OnFile) -> Mapping[str, Path]:
        """CuTe DSL, the Python that runs it, and the compile worker."""
        dsl = cute_dsl.provide(platform, cute_dsl.running_python(), folder, on_file)
        return {"cute_dsl": dsl, "python": Path(sys.executable), "fa4_worker": actions.WORKER}

    def flags(
        self,
        kit: Kit,  # noqa: ARG002
        sass: Sequence[Architecture],  # noqa: ARG002
        *,
        front_end: str,  # noqa: ARG002
        compress: str,  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Which CuTe DSL compiles; the rest differs from kernel to kernel."""
        return actions.flags()

    def actions(self, recipe: Recipe, source: Identified, kit: Kit) -> tuple[Action, ...]:  # noqa: ARG002
        """One run of the compile worker a kernel and architecture."""
        return actions.actions(recipe)

    c_layer_words: tuple[str, ...] = ("-I{native}",)
    """Its objects call functions that stand on the run time over the driver."""

    def config_lines(self, selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterable[str]:
        """The version, the architectures, the features, and the units."""
        return actions.config_lines(selection, sass, source.id.version)

    def licences(self, root: Path) -> Mapping[str, str]:
        """The text of flash-attn-4; CuTe DSL leaves nothing of itself in what it compiles."""
        return {"flash-attn-4": (root / "LICENSE").read_text(encoding="utf-8")}

    def python_files(self, root: Path) -> Iterable[Path]:  # noqa: ARG002
        """Nothing: a wheel is the package of flash-attn 2 over the library."""
        return ()

    def estimate(
        self,
        unit: Unit,
        features: frozenset[Feature],  # noqa: ARG002
        architectures: int,
        front_end: str,  # noqa: ARG002
    ) -> Estimate:
        """What a unit is expected to cost, by what was measured."""
        return estimate(unit, architectures)

    def full(self) -> Iterable[Unit]:
        """Every unit."""
        return units()
