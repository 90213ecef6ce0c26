"""Kernels of fa4: which there are, in which order their blocks take tiles, and how arguments lie."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from flashdepot.errors import GET_NEWER, IncompatibleError, UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels.fa4.sources import KERNELS, Fa4Layout
from flashdepot.kernels.fa4.variants import (
    HEAD_DIMS,
    LAYOUTS,
    MASKS,
    Mask,
    Variant,
    backward_tiles,
    backward_variants,
    forward_variants,
)
from flashdepot.toolchain.cute_dsl import provided_version

ALL = [*forward_variants(), *backward_variants()]


def test_every_kernel_has_a_name_of_its_own_that_says_what_it_does() -> None:
    assert max(Counter(v.name for v in ALL).values()) == 1
    assert Variant("fwd", 128, "bf16", "packed", "causal", softcap=True).name == "fwd_d128_bf16_packed_causal_softcap"
    assert Variant("bwd", 64, "fp16", "dense", "full", several_heads=True).name == "bwd_d64_fp16_dense_full_gqa"
    long = Variant("fwd", 128, "bf16", "dense", "causal", long=True)
    assert long.name == "fwd_d128_bf16_dense_causal_long"
    assert Variant("pre", 96, "bf16", "dense", tile_m=64).name == "pre_d96_bf16_dense_m64"
    assert Variant("dkv", 96, "bf16", "dense").name == "dkv_d96_bf16_dense"


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_backward_kernel_has_those_that_prepare_and_finish_for_it(head_dim: int) -> None:
    passes = [v for v in ALL if v.kernel == "bwd" and v.head_dim == head_dim]
    assert len(passes) == 48
    for variant in passes:
        tile_m, tile_n = variant.tiles
        shared = (head_dim, variant.dtype, variant.layout)
        assert Variant("pre", *shared, tile_m=tile_m) in ALL
        query, key = Variant("dq", *shared, tile_m=tile_m), Variant("dkv", *shared)
        assert {query, key} <= set(ALL)
        assert (query.job()["tile"], key.job()["tile"]) == (tile_m, tile_n)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("mask", MASKS)
def test_the_kernel_that_finishes_dq_reads_it_as_the_backward_kernel_wrote_it(head_dim: int, mask: Mask) -> None:
    tiles = backward_tiles(head_dim, mask)
    job = Variant("dq", head_dim, "bf16", "dense", tile_m=tiles.tile_m).job()
    written = (tiles.atoms_dq, tiles.swap_dq, tiles.query_threads, tiles.hdim_multiple)
    assert (job["atoms"], job["swap"], job["threads"], job["hdim_multiple"]) == written


def test_the_program_that_runs_every_kernel_knows_which_sequences_are_long() -> None:
    program = ast.parse((Path(__file__).parents[2] / "gpu" / "every_unit.py").read_text())
    (value,) = (n.value for n in program.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "LONG")
    every = {v: v.shortest for v in forward_variants() if v.long}
    told = {layout: {(v.head_dim, v.mask): n for v, n in every.items() if v.layout == layout} for layout in LAYOUTS}
    assert ast.literal_eval(value) == {layout: lengths for layout, lengths in told.items() if lengths}


METADATA = "Metadata-Version: 2.4\nVersion: 4.0.0b99\nRequires-Dist: nvidia-cutlass-dsl{}\nRequires-Dist: torch\n"
PROJECT = """[project]
dependencies = [
    "nvidia-cutlass-dsl{}",
    "torch",
]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "cute"
    folder.mkdir()
    (folder / KERNELS).write_text("")
    return folder


@pytest.mark.parametrize(("file", "text"), [("PKG-INFO", METADATA), ("pyproject.toml", PROJECT)])
@pytest.mark.parametrize(
    ("wanted", "fits"),
    [(">=4.6.2", True), ("", True), (f"=={provided_version()}", True), (">=5", False), ("<4.8,>=4.6", False)],
)
def test_a_source_for_another_version_of_the_dsl_is_refused(
    source: Path, file: str, text: str, wanted: str, fits: bool
) -> None:
    (source / file).write_text(text.format(wanted))
    if fits:
        Fa4Layout().require_complete(PlainFiles(source))
        return
    with pytest.raises(IncompatibleError) as error:
        Fa4Layout().require_complete(PlainFiles(source))
    assert str(error.value) == (
        f"{source} is written for CuTe DSL {wanted}, and flashdepot compiles FlashAttention-4 with CuTe DSL "
        f"{provided_version()}."
    )
    assert GET_NEWER in str(error.value.hint)


def test_a_folder_without_the_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"it has no {KERNELS}"):
        Fa4Layout().require_complete(PlainFiles(tmp_path))
