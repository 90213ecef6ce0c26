"""How FlashAttention-4 is compiled: one run of the compile worker a kernel and architecture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from flashdepot.kernels.actions import c_string
from flashdepot.kernels.c_layer import choices
from flashdepot.kernels.fa4.sources import KERNELS
from flashdepot.kernels.fa4.speed import TABLE, read_table, table_lines
from flashdepot.kernels.fa4.units import HOSTS, NAME, Kernel, kernels_of, unit_name
from flashdepot.model.codec import digest_of
from flashdepot.model.recipe import Action, Recipe, Tool
from flashdepot.model.selection import Feature, Selection
from flashdepot.model.target import Architecture
from flashdepot.toolchain.wheels import dsl_identity, dsl_version
from flashdepot.upstream import Identified

WORKER = Path(__file__).with_name("worker")
"""The folder of the compile worker."""

_OUTPUTS = ("{output}", "{depfile}")


def flags(*_: object, **__: object) -> tuple[str, ...]:
    """What every kernel is compiled with and by, and the measurements by which calls are given to it."""
    return (
        f"cute-dsl {dsl_version()} {dsl_identity()}",
        f"kernels {digest_of(choices(WORKER.parent))}",
    )


def actions(recipe: Recipe, *_: object) -> Iterator[Action]:
    """One run of the worker for each kernel and architecture."""
    tools = (Tool("cute-dsl", str(dsl_version()), dsl_identity()),)
    triple, cpu = HOSTS[str(recipe.target.platform)]
    selected = {unit.name: unit for unit in recipe.selection.units if unit.family == NAME}
    for kernel in kernels_of(selected, recipe.target.sass):
        name = f"{NAME}_sm{kernel.arch}_{kernel.variant.name}"
        job = {**kernel.job, "arch": f"sm_{kernel.arch}", "triple": triple, "cpu": cpu, "prefix": name}
        worker = ("{python}", "-I", "-S", "-X", "pycache_prefix={work}/pycache", "{fa4_worker}")
        arguments = (*worker, "{cute_dsl}", "{fa4}", json.dumps(job, sort_keys=True))
        unit = selected.get(unit_name(kernel.arch, kernel.variant))
        yield Action(name, NAME, KERNELS, arguments, tools, unit=unit, outputs=_OUTPUTS, resident=kernel.arch)


def config_lines(selection: Selection, sass: Iterable[Architecture], source: Identified) -> Iterator[str]:
    """Yield the macros that the C layer makes its table of units from (native/src/fa4/units.cpp)."""
    kernels = kernels_of((unit.name for unit in selection.units if unit.family == NAME), sass)
    arches = dict.fromkeys(kernel.arch for kernel in kernels)
    yield f'#define FA4_CONFIG_UPSTREAM "{c_string(source.id.version)}"'
    yield f"#define FA4_CONFIG_SASS {', '.join(arch[:-1] for arch in arches)}"
    yield from (
        f"#define FA4_CONFIG_HAS_{feature.value.upper()} {int(feature in selection.features)}" for feature in Feature
    )
    yield " \\\n    ".join(["#define FA4_CONFIG_UNITS(X)", *map(_row, kernels)])
    yield from table_lines(read_table(TABLE))


def _row(kernel: Kernel) -> str:
    variant = kernel.variant
    tile_m, tile_n = kernel.tiles
    flags = f"{int(variant.softcap)}, {int(variant.several_heads)}, {kernel.blocks}, {kernel.shortest}, {kernel.percent}, {kernel.most_rows}"
    head_dims = f"{variant.head_dim}, {variant.head_dim_v}"
    what = f"{variant.kernel}, {variant.dtype}, {head_dims}, {variant.layout}, {variant.mask}, {flags}"
    return f"X({kernel.arch[:-1]}, {kernel.arch[-1]}, {what}, {tile_m}, {tile_n}, {variant.name})"
