"""FlashAttention-2: upstream's CUDA kernels, unmodified, compiled by nvcc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from flashdepot.kernels.fa2 import units
from flashdepot.kernels.fa2.sources import CUTLASS_INCLUDE, SOURCE_DIR, Fa2Layout, licences, published
from flashdepot.kernels.family import Family
from flashdepot.upstream import Sources

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles
    from flashdepot.model.recipe import Estimate
    from flashdepot.model.selection import Feature, Unit

_PACKAGE = "flash_attn"


class Fa2(Family):
    """The family ``fa2``: upstream's own releases, for every GPU from Ampere on."""

    name = units.NAME
    title = "FlashAttention-2"
    oldest_gpu = units.OLDEST
    sources = Sources(Fa2Layout(), published)
    c_layer_words = (units.NAMESPACE_MACRO, f"-I{{upstream}}/{SOURCE_DIR}", f"-I{{upstream}}/{CUTLASS_INCLUDE}")
    """Its folder of the C layer includes upstream's headers."""

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts of flash-attention and of CUTLASS."""
        return licences(files)

    def python_files(self, files: PlainFiles) -> Iterator[str]:
        """Yield the modules that upstream's setup.py packages: of folders with ``__init__.py``, all the way down."""
        found = [name for name in files.below(_PACKAGE) if name.endswith(".py")]
        packages = {name.rpartition("/")[0] for name in found if name.endswith("/__init__.py")}
        for name in found:
            if all(str(folder) in packages for folder in PurePosixPath(name).parents[:-1]):
                yield name

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int, front_end: str) -> Estimate:
        """What a unit is expected to cost, by what was measured."""
        return units.estimate(unit, features, architectures, front_end)

    def full(self) -> Iterable[Unit]:
        """Every unit that was measured."""
        return units.measured()
