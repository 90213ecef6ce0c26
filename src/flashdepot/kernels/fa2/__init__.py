"""FlashAttention-2: upstream's CUDA kernels, unmodified, compiled by nvcc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from flashdepot.kernels.fa2 import units
from flashdepot.kernels.fa2.sources import CUTLASS_INCLUDE, SOURCE_DIR, Fa2Layout, licences, published
from flashdepot.kernels.family import Family
from flashdepot.model.target import Architecture
from flashdepot.upstream import Sources

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles
    from flashdepot.kernels.actions import Compilers
    from flashdepot.model.recipe import Action, Estimate, Recipe
    from flashdepot.model.selection import Feature, Selection, Unit
    from flashdepot.upstream import Identified

_PACKAGE = "flash_attn"


class Fa2(Family):
    """The family ``fa2``: upstream's own releases, for every GPU from Ampere on.

    What only a build asks for is imported when it is asked for: every command knows the families.
    """

    name = units.NAME
    title = "FlashAttention-2"
    oldest_gpu = Architecture(8, 0)
    """Ampere: the kernels use ``cp.async`` and its tensor-core shapes."""
    sources = Sources(Fa2Layout(), published)
    c_layer_words = (units.NAMESPACE_MACRO, f"-I{{upstream}}/{SOURCE_DIR}", f"-I{{upstream}}/{CUTLASS_INCLUDE}")
    """Its folder of the C layer includes upstream's headers."""

    def flags(
        self, compilers: Compilers, sass: Sequence[Architecture], *, front_end: str, compress: str
    ) -> tuple[str, ...]:
        """Upstream's own flags, the namespace, and what nvcc is given for every source."""
        from flashdepot.kernels.fa2 import actions  # noqa: PLC0415

        return actions.flags(compilers, sass, front_end=front_end, compress=compress, oldest=self.oldest_gpu)

    def actions(self, recipe: Recipe, source: Identified, compilers: Compilers) -> tuple[Action, ...]:
        """The compiler runs of each translation unit."""
        from flashdepot.kernels.fa2 import actions  # noqa: PLC0415

        return tuple(actions.actions(recipe, source, compilers))

    def config_lines(self, selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterator[str]:
        """The version and its quirks, the head dims of the tree, the features, and the units of each pass."""
        from flashdepot.kernels.fa2 import actions  # noqa: PLC0415

        return actions.config_lines(selection, sass, source)

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
