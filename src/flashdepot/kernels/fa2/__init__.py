"""FlashAttention-2: upstream's CUDA kernels, unmodified, compiled by nvcc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flashdepot.kernels.fa2.sources import CUTLASS_INCLUDE, SOURCE_DIR, Fa2Layout, published
from flashdepot.kernels.fa2.units import NAME, NAMESPACE_MACRO
from flashdepot.model.selection import Feature, Pass, Selection, Unit
from flashdepot.model.target import Architecture
from flashdepot.upstream import Sources

if TYPE_CHECKING:
    from flashdepot.events import Fetch, OnFile
    from flashdepot.files.directory import PlainFiles
    from flashdepot.kernels.family import Kit
    from flashdepot.model.recipe import Action, Estimate, Recipe
    from flashdepot.model.target import Platform
    from flashdepot.upstream import Identified

_PACKAGE = "flash_attn"


class Fa2:
    """The family ``fa2``.

    What only a build asks for is imported when it is asked for: every command knows the families.
    """

    name = NAME
    title = "FlashAttention-2"
    oldest_gpu = Architecture(8, 0)
    """Ampere: the kernels use ``cp.async`` and its tensor-core shapes."""
    sources = Sources(Fa2Layout(), published)

    def lacks(self, gpu: Architecture, platform: Platform) -> str:  # noqa: ARG002
        """Nothing, from the oldest GPU on."""
        return "" if gpu >= self.oldest_gpu else f"needs compute capability {self.oldest_gpu.dotted} or newer"

    def runs(self, unit: Unit, gpu: Architecture) -> bool:  # noqa: ARG002
        """Every one."""
        return True

    def is_proven(self, gpu: Architecture) -> bool:  # noqa: ARG002
        """On every GPU: the kernels are upstream's own releases."""
        return True

    def compiles_here(self, platform: Platform) -> bool:  # noqa: ARG002
        """Everywhere."""
        return True

    def provide(
        self,
        platform: Platform,  # noqa: ARG002
        folder: Path,  # noqa: ARG002
        on_file: OnFile,  # noqa: ARG002
    ) -> Mapping[str, Path]:
        """Nothing: nvcc and the host compiler do it all."""
        return {}

    def to_fetch(self, platform: Platform, folder: Path) -> Iterable[Fetch]:  # noqa: ARG002
        """Nothing likewise."""
        return ()

    def flags(self, kit: Kit, sass: Sequence[Architecture], *, front_end: str, compress: str) -> tuple[str, ...]:
        """Upstream's own flags, the namespace, and what nvcc is told for every source."""
        from flashdepot.kernels.fa2 import actions  # noqa: PLC0415

        return actions.flags(kit, sass, front_end=front_end, compress=compress, oldest=self.oldest_gpu)

    def actions(self, recipe: Recipe, source: Identified, kit: Kit) -> tuple[Action, ...]:
        """One compiler run a translation unit."""
        from flashdepot.kernels.fa2 import actions  # noqa: PLC0415

        return actions.actions(recipe, source, kit)

    c_layer_words = (NAMESPACE_MACRO, f"-I{{upstream}}/{SOURCE_DIR}", f"-I{{upstream}}/{CUTLASS_INCLUDE}")
    """Its folder of the C layer includes upstream's headers."""

    def config_lines(self, selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterator[str]:
        """Yield the version and its quirks, the head dims of the tree, the features, and the units of each pass."""
        from flashdepot.kernels.actions import c_string  # noqa: PLC0415
        from flashdepot.kernels.fa2.actions import dq_index_64_since, indexes_dq_with_64_bits  # noqa: PLC0415

        version = source.id.version
        yield f'#define FA2_CONFIG_UPSTREAM "{c_string(version)}"'
        yield f"#define FA2_CONFIG_DQ_INDEX_BITS {64 if indexes_dq_with_64_bits(version) else 32}"
        yield f'#define FA2_CONFIG_DQ_INDEX_64_SINCE "{dq_index_64_since()}"'
        yield f"#define FA2_CONFIG_SASS {', '.join(map(str, sass))}"
        head_dims = sorted({u.head_dim for u in source.units})
        yield f"#define FA2_CONFIG_HEAD_DIMS {', '.join(map(str, head_dims))}"
        yield from (f"#define FA2_CONFIG_HAS_{f.value.upper()} {int(f in selection.features)}" for f in Feature)
        for pass_ in Pass:
            units = sorted(u for u in selection.units if u.family == self.name and u.pass_ is pass_)
            entries = [f"X({u.dtype}, {u.head_dim}, {str(u.causal).lower()})" for u in units]
            yield " \\\n    ".join([f"#define FA2_CONFIG_{pass_.value.upper()}_UNITS(X)", *entries])

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts of flash-attention and of CUTLASS."""
        from flashdepot.kernels.fa2.sources import licences  # noqa: PLC0415

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
        from flashdepot.kernels.fa2 import costs  # noqa: PLC0415

        return costs.estimate(unit, features, architectures, front_end)

    def full(self) -> Iterable[Unit]:
        """Every unit that was measured."""
        from flashdepot.kernels.fa2 import costs  # noqa: PLC0415

        return costs.measured()
