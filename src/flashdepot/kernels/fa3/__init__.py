"""FlashAttention-3: upstream's kernels for Hopper, of which those are compiled that no other family has."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.kernels.family import Family
from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture
from flashdepot.upstream import Sources
from flashdepot.upstream.source import Sdist, read_sdists, version_in

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles

NAME = "fa3"

HOPPER = Architecture.parse("90a")
"""What the kernels are for: their products are those of no other architecture."""

NAMES = (
    "-DFlash_fwd_params=flashdepot_fa3_params",
    "-Dflash=flashdepot_fa3",
    "-Dcutlass=flashdepot_fa3_cutlass",
    "-Dcute=flashdepot_fa3_cute",
)
"""Upstream's names are those of every other FlashAttention-3 and CUTLASS in a program, of whichever version: these are ours."""

FEATURES = frozenset({Feature.LOCAL, Feature.UNEVEN_K})
"""What every unit has in it. Upstream caps scores in units of their own."""

_SHAPES = ((Dtype.E4M3, 64, 64), (Dtype.E4M3, 128, 128), (Dtype.E4M3, 256, 256), (Dtype.BF16, 64, 512))
"""Dtype and head dims of q and k, and of v."""

_GB = 10**9


def unit_name(dtype: Dtype, head_dim: int, head_dim_v: int, *, paged: bool, split: bool) -> str:
    """The name of upstream's file, without its ending."""
    dims = f"{head_dim}_{head_dim_v}" if head_dim_v != head_dim else f"{head_dim}"
    return f"flash_fwd_hdim{dims}_{dtype}{'_paged' if paged else ''}{'_split' if split else ''}_sm90"


@cache
def units() -> frozenset[Unit]:
    """Every unit that is offered: each without and with pages that are read row by row, and parts of the keys."""
    return frozenset(
        Unit(NAME, Pass.SPLITKV if split else Pass.FWD, dim, dtype, False, name)
        for (dtype, dim, dim_v), paged, split in itertools.product(_SHAPES, (False, True), (False, True))
        for name in (unit_name(dtype, dim, dim_v, paged=paged, split=split),)
    )


def row(unit: Unit) -> str:
    """A unit as the C layer lists it: dtype, both head dims, whether it is for parts of the keys, and for pages."""
    dtype, dim, dim_v, paged, split = next(
        (dtype, dim, dim_v, paged, split)
        for (dtype, dim, dim_v), paged, split in itertools.product(_SHAPES, (False, True), (False, True))
        if unit_name(dtype, dim, dim_v, paged=paged, split=split) == unit.name
    )
    return f"X({dtype}, {dim}, {dim_v}, {str(split).lower()}, {str(paged).lower()})"


_ROOT = "third_party/flash-attention"
SOURCE_DIR = f"{_ROOT}/hopper"
UNITS_DIR = f"{SOURCE_DIR}/instantiations"
CUTLASS_DIR = f"{_ROOT}/csrc/cutlass"
CUTLASS_INCLUDE = f"{CUTLASS_DIR}/include"

_HEADERS = (f"{SOURCE_DIR}/flash_fwd_launch_template.h", f"{CUTLASS_INCLUDE}/cute/tensor.hpp")
_LICENCE = Path(__file__).with_name("flash-attention-LICENSE.txt")
"""The text of flash-attention's own repository, which the folder ``hopper`` is a part of and does not repeat."""


class Fa3Layout:
    """The tree of the sdist, which is that of xFormers' repository with its submodules."""

    project = "xformers"
    kept = (SOURCE_DIR, CUTLASS_INCLUDE, f"{CUTLASS_DIR}/LICENSE.txt", "PKG-INFO")
    """The kernels with their tests, and CUTLASS."""
    submodules = (_ROOT, CUTLASS_DIR)

    def require_complete(self, files: PlainFiles) -> None:
        """Check that a folder holds FlashAttention-3's kernels and CUTLASS's headers."""
        kernels, cutlass = _HEADERS
        if not files.has(kernels):
            raise UsageError(
                f"{files.root} is not a source tree that holds FlashAttention-3: it has no {kernels}.",
                hint="Leave --upstream out, for the published source.",
            )
        if not files.has(cutlass):
            raise MissingToolError(
                f"{files.root} lacks CUTLASS, which its kernels include: there is no {cutlass}.",
                hint="In a git clone: git submodule update --init --recursive. Otherwise use the published source.",
            )

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        """Those of :func:`units` that a tree has."""
        return frozenset(unit for unit in units() if files.has(f"{UNITS_DIR}/{unit.name}.cu"))

    def features(self, files: PlainFiles) -> frozenset[Feature]:  # noqa: ARG002  (every tree has them)
        """What is in every unit."""
        return FEATURES

    def version(self, files: PlainFiles) -> str:
        """Read the version of the sdist from its ``PKG-INFO``; ``unknown`` for another tree."""
        return version_in(files)

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """The folder of the kernels, and CUTLASS."""
        others = (name for name in files.below(SOURCE_DIR) if name.endswith((".h", ".hpp", ".cu")))
        return (*others, CUTLASS_INCLUDE)


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    return read_sdists(Path(__file__).with_name("sdists.toml"), units(), FEATURES)


class Fa3(Family):
    """The family ``fa3``: FP8, and absorbed multi-head latent attention."""

    name = NAME
    title = "FlashAttention-3"
    oldest_gpu = Architecture(9, 0)
    """Hopper: the kernels use its tensor memory accelerator and warp group products."""
    is_usual = False
    """Its 18 sources take 45 CPU-minutes, and serve two kinds of call only."""
    sources = Sources(Fa3Layout(), published)
    c_layer_words = ("-I{native}", f"-I{{{NAME}}}/{SOURCE_DIR}", *NAMES)
    """Its folder of the C layer includes upstream's block of parameters and table of tiles."""

    def lacks(self, gpu: Architecture) -> str:
        """Every GPU but Hopper's."""
        if HOPPER.runs_on(gpu):
            return ""
        return f"has kernels for compute capability 9.0 only, and not for {gpu.dotted}"

    def runs(self, unit: Unit, gpu: Architecture) -> bool:
        """Whether it is a Hopper."""
        return unit.family == self.name and HOPPER.runs_on(gpu)

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts of flash-attention and of the CUTLASS in the tree."""
        cutlass = files.text(f"{CUTLASS_DIR}/LICENSE.txt")
        if not cutlass:
            raise UsageError(
                f"{files.root / CUTLASS_DIR / 'LICENSE.txt'} has no licence text, and no binary may be passed on without it.",
                hint="Restore it, or use the published source.",
            )
        return {"flash-attention-3": _LICENCE.read_text(encoding="utf-8"), "cutlass-of-fa3": cutlass}

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int) -> Estimate:  # noqa: ARG002
        """What any unit is expected to cost: e4m3 at head dim 128, nvcc 13.0.88, two busy cores (2026-11)."""
        return Estimate(165.0, 6 * _GB)

    def full(self) -> Iterable[Unit]:
        """Every unit."""
        return units()
