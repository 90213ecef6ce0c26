"""candle's own kernels, for the calls that no kernel of flash-attention can do: head dim 512 and prefix ranges.

Their sources are in the crate, in ``kernels``. Only those files are compiled that were asked for, next to candle's own
``flash_api.cu``, which launches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from flashdepot.errors import IncompatibleError, UsageError, did_you_mean
from flashdepot.kernels.actions import Compilers, cuda_actions
from flashdepot.kernels.fa2.actions import UPSTREAM_FLAGS
from flashdepot.link.candle_versions import CRATE, NEWEST_LIST, CandleLine
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import Action, Recipe, ToolchainId
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture, Target
from flashdepot.toolchain.nvcc import nvcc_flags, usual_compression

RUN_MHA = "flashdepot_candle_run_mha"
"""What candle's ``run_mha`` is called in an archive that has one of its own before it."""

HEADER = "candle_kernels.h"
PLACE = "candle"
"""The name of the folder of the sources in compilers' arguments."""

_API = "flash_api"
_FILE = r"flash_fwd_(splitkv_)?hdim(\d+)_(bf16|fp16)(_causal)?_sm80"
_LARGEST_OF_FLASH_ATTENTION = 256
_OLDEST = Architecture(8, 0)


class CandleKernel(msgspec.Struct, frozen=True, order=True):
    """A file of ``kernels``: ``paged`` kernels read keys and values in pages of any multiple of 32 rows."""

    paged: bool
    head_dim: int
    dtype: Dtype
    causal: bool

    @property
    def name(self) -> str:
        """What users call it: ``splitkv_hdim256_bf16_causal``."""
        return f"{'splitkv_' * self.paged}hdim{self.head_dim}_{self.dtype}{'_causal' * self.causal}"

    @property
    def stem(self) -> str:
        """Its file without the ending."""
        return f"flash_fwd_{self.name}_sm80"

    @classmethod
    def parse(cls, stem: str) -> CandleKernel | None:
        """Read :attr:`stem`; ``None`` for a file that is not a kernel."""
        found = re.fullmatch(_FILE, stem)
        return cls(bool(found[1]), int(found[2]), Dtype(found[3]), bool(found[4])) if found else None

    @property
    def unit(self) -> Unit:
        """What it is to a build: a kernel of flash-attention's kind, and about as long to compile."""
        pass_ = Pass.SPLITKV if self.paged else Pass.FWD
        return Unit("fa2", pass_, self.head_dim, self.dtype, self.causal, self.stem)


def kernels_beyond(crate: Path) -> list[CandleKernel]:
    """The kernels of a crate that do what none of flash-attention's does."""
    found = (CandleKernel.parse(path.stem) for path in sorted((crate / "kernels").glob("*.cu")))
    return [kernel for kernel in found if kernel and (kernel.paged or kernel.head_dim > _LARGEST_OF_FLASH_ATTENTION)]


def choose_kernels(crate: Path, words: str, line: CandleLine, version: str) -> tuple[CandleKernel, ...]:
    """The kernels that ``--candle-kernels`` names: ``all``, or names with ``*``, such as ``splitkv_hdim256_bf16*``."""
    there = kernels_beyond(crate) if line.arguments == NEWEST_LIST else []
    if not there:
        raise IncompatibleError(
            f"{line.crate} {version} has no kernels that its calls here would need: those of {CRATE} 0.11.0 and newer do, "
            "for head dim 512 and prefix ranges.",
            hint="Leave out --candle-kernels.",
        )
    chosen: set[CandleKernel] = set()
    for word in filter(None, re.split(r"[,\s]+", words.strip())):
        found = [kernel for kernel in there if word == "all" or fnmatchcase(kernel.name, word)]
        if not found:
            names = [kernel.name for kernel in there]
            raise UsageError(
                f"'{word}' is not one of candle's kernels that can be added: {', '.join(names)}.{did_you_mean(word, names)}",
                hint="Name some, with * for any text, or: --candle-kernels all",
            )
        chosen.update(found)
    if not chosen:
        raise UsageError("--candle-kernels names none.", hint="--candle-kernels all")
    return tuple(sorted(chosen))


def table_header(kernels: Sequence[CandleKernel], features: frozenset[Feature]) -> str:
    """What ``mha_candle.c`` is given of the kernels in an archive."""
    rows = [f"X({k.paged:d}, {k.head_dim}, {k.dtype is Dtype.BF16:d}, {k.causal:d})" for k in kernels]
    asked = (Feature.ALIBI, Feature.SOFTCAP, Feature.LOCAL, Feature.UNEVEN_K)
    lines = [f"#define HAS_{feature.value.upper()} {feature in features:d}" for feature in asked]
    return "\n".join([*lines, " \\\n  ".join(["#define CANDLE_KERNELS(X)", *rows]), ""])


def recipe_for(manifest: Manifest, toolchain: ToolchainId, compilers: Compilers) -> Recipe:
    """The recipe of the library that they are added to. nvcc is given what candle gives it: upstream's flags."""
    target = Target(manifest.platform, compilers.cuda.major, manifest.sass, manifest.driver_floor)
    mode, options = usual_compression(compilers.cuda), compilers.nvcc_options
    words = nvcc_flags(manifest.sass, virtual=_OLDEST, compress=mode, options=options)
    return Recipe(
        manifest.upstreams, manifest.selection, target, toolchain, "shared", "", {PLACE: (*UPSTREAM_FLAGS, *words)}
    )


def kernel_actions(
    kernels: Iterable[CandleKernel], features: frozenset[Feature], recipe: Recipe, compilers: Compilers
) -> tuple[Action, ...]:
    """The compiler runs of some kernels and of what launches them, both sides of each.

    :param features: what a kernel should be able to do; candle's macros leave the others out, and dropout, which its
        calls never ask for.
    """
    wanted = features - {Feature.DROPOUT}
    # "=": as empty as where candle's files for head dim 512 define them, which is then no other definition.
    left_out = tuple(f"-DFLASHATTENTION_DISABLE_{f.value.upper()}=" for f in Feature if f not in wanted)
    words = (*left_out, "-I{cutlass}")
    made = [(_API, (f"-Drun_mha={RUN_MHA}", *words), None), *((k.stem, words, k.unit) for k in kernels)]
    return tuple(
        action
        for stem, told, unit in made
        for action in cuda_actions(compilers, f"candle-{stem}", PLACE, f"{stem}.cu", recipe.flags[PLACE], told, unit)
    )
