"""Kernels of fa4: which there are, in which order their blocks take tiles, and where they are faster."""

import heapq
import itertools
import math
import runpy
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flashdepot.kernels.fa4
from flashdepot.errors import GET_NEWER, IncompatibleError, UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels.fa4.sources import KERNELS, Fa4Layout
from flashdepot.kernels.fa4.speed import KINDS, TABLE, Measured, Slower, read_table, slower, table_lines, write_table
from flashdepot.kernels.fa4.variants import HEAD_DIMS, Variant, backward_tiles, backward_variants, forward_variants
from flashdepot.toolchain.wheels import dsl_version

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
def test_every_backward_kernel_has_those_that_prepare_and_finish_for_it(head_dim) -> None:
    passes = [v for v in ALL if v.kernel == "bwd" and v.head_dim == head_dim]
    assert len(passes) == (64 if head_dim == 64 else 48)
    for variant in passes:
        tile_m, tile_n = variant.tiles
        shared = (head_dim, variant.dtype, variant.layout)
        assert Variant("pre", *shared, tile_m=tile_m) in ALL
        query, key = Variant("dq", *shared, tile_m=tile_m), Variant("dkv", *shared)
        assert {query, key} <= set(ALL)
        assert query.job()["tile"] == tile_m
        assert variant.grouped or not variant.several_heads or key.job()["tile"] == key.tiles[0] == tile_n


@pytest.mark.parametrize(("head_dim", "half"), [*((dim, False) for dim in HEAD_DIMS), (64, True)])
def test_the_kernel_that_finishes_dq_reads_it_as_the_backward_kernel_wrote_it(head_dim, half) -> None:
    tiles = backward_tiles(head_dim, half=half)
    job = Variant("dq", head_dim, "bf16", "dense", tile_m=tiles.tile_m).job()
    written = (tiles.atoms_dq, tiles.swap_dq, tiles.query_threads, tiles.hdim_multiple)
    assert (job["atoms"], job["swap"], job["threads"], job["hdim_multiple"]) == written


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
    [(">=4.6.2", True), ("", True), (f"=={dsl_version()}", True), (">=5", False), ("<4.8,>=4.6", False)],
)
def test_a_source_for_another_version_of_the_dsl_is_refused(source, file, text, wanted, fits) -> None:
    (source / file).write_text(text.format(wanted))
    if fits:
        Fa4Layout().require_complete(PlainFiles(source))
        return
    with pytest.raises(IncompatibleError) as error:
        Fa4Layout().require_complete(PlainFiles(source))
    assert str(error.value) == (
        f"{source} is written for CuTe DSL {wanted}, and flashdepot compiles FlashAttention-4 with CuTe DSL "
        f"{dsl_version()}."
    )
    assert GET_NEWER in str(error.value.hint)


def test_a_folder_without_the_kernels_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match=f"it has no {KERNELS}"):
        Fa4Layout().require_complete(PlainFiles(tmp_path))


_ORDER = SimpleNamespace(**runpy.run_path(str(Path(flashdepot.kernels.fa4.__file__).parent / "worker/order.py")))

H200 = 132
"""Its SMs, and so the blocks of a walking kernel."""


def choose(says: bool, this: int, that: int) -> int:
    return this if says else that


def taken(first: int, blocks: int, rows: int, heads: int) -> Iterator[tuple[int, int]]:
    """The head and row of each tile that a block takes."""
    number = 0
    while True:
        head, row, is_one = _ORDER.tile_of(number, first, blocks, rows, heads, choose)
        if not is_one:
            return
        yield head, row
        number += 1


@given(st.integers(1, 150), st.integers(1, 40), st.integers(1, 200))
def test_every_tile_is_taken_once(blocks, rows, heads) -> None:
    blocks = min(blocks, rows * heads)  # as the kernel's grid is
    tiles = [tile for first in range(blocks) for tile in taken(first, blocks, rows, heads)]
    assert sorted(tiles) == [(head, row) for head in range(heads) for row in range(rows)]


@given(st.integers(1, 5000), st.integers(1, 150), st.integers(0, 6))
def test_every_tile_is_one_blocks_where_the_last_have_blocks_of_their_own(tiles, blocks, rounds) -> None:
    shared = _ORDER.in_turns(tiles, blocks, rounds, max)
    shares = [_ORDER.share_of(block, blocks, shared, choose) for block in range(min(tiles, blocks + tiles - shared))]
    taken = [tile for first, end in shares for tile in range(first, min(end, tiles), blocks)]
    assert sorted(taken) == list(range(tiles))


def busiest(rows: int, heads: int, window: float = math.inf) -> float:
    """The work of the block with most of it, over the mean; a tile's is the keys that it sees and what begins and ends it."""
    work = [1.5 + min(row + 1, window + 1) for row in range(rows)]
    sums = [sum(work[row] for _, row in taken(first, H200, rows, heads)) for first in range(H200)]
    return max(sums) / (sum(sums) / H200)


@pytest.mark.parametrize("length", [512, 1024, 2048, 4096, 16384])
@pytest.mark.parametrize("heads", [8, 16, 32])
def test_causal_tiles_are_dealt_out_evenly(length, heads) -> None:
    # of 16,384 rows of queries in tiles of 128; one after the other in turns gave 1.03 to 1.69
    assert busiest(length // 128, 16384 // length * heads) < 1.1


@pytest.mark.parametrize("length", [512, 1024, 2048])
def test_tiles_of_a_window_are_dealt_out_evenly(length) -> None:
    # of a quarter of the keys, 16 heads; in rows' own order it gave 1.10 to 1.13, and 1.29 for a window of all
    assert busiest(length // 128, 16384 // length * 16, window=length // 512) < 1.06
    assert busiest(length // 128, 16384 // length * 16, window=length // 128) < 1.06


def placed(tiles: int, heads: int, most: int) -> list[tuple[int, int]]:
    """The head and tile of each block that has one."""
    return [_ORDER.by_turns(number, tiles, heads, most, choose) for number in range(tiles * heads)]


@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 70))
def test_every_tile_has_a_block(tiles, heads, most) -> None:
    assert sorted(placed(tiles, heads, most)) == [(head, tile) for head in range(heads) for tile in range(tiles)]


@pytest.mark.parametrize(("tiles", "heads"), [(78, 4), (16, 12), (40, 16), (22, 16)])
def test_blocks_whose_work_falls_end_together(tiles, heads) -> None:
    def end(order: Iterable[tuple[int, int]]) -> int:
        sms = [0] * H200
        for _, tile in order:
            heapq.heapreplace(sms, sms[0] + tiles - tile)
        return max(sms)

    least = max(tiles, heads * tiles * (tiles + 1) / 2 / H200)
    assert end(placed(tiles, heads, 16)) < 1.12 * least
    assert end(itertools.product(range(heads), range(tiles))) > 1.12 * least, "head by head"


KIND = (90, "dense", "fwd", 128, "causal")
LAST = 2**31 - 1


def measured(seqlen: int, fa4: float, fa2: float = 100, group: int = 1, kind: str = "dense") -> Measured:
    return Measured(90, kind, *KIND[2:], group, seqlen, fa4, fa2)


@pytest.mark.parametrize(
    ("speeds", "ranges"),
    [
        ({512: 120, 1024: 110}, []),
        ({512: 90, 1024: 110}, [(0, 724)]),
        ({512: 110, 1024: 90, 4096: 110}, [(725, 2047)]),
        ({512: 110, 1024: 90}, [(725, LAST)]),
        ({512: 90, 1024: 90}, [(0, LAST)]),
        ({512: 90, 1024: 110, 2048: 90}, [(0, 724), (1449, LAST)]),
    ],
)
def test_a_length_stands_for_those_around_it(speeds, ranges) -> None:
    found = list(slower(measured(seqlen, fa4) for seqlen, fa4 in speeds.items()))
    assert found == [Slower(*KIND, 0, LAST, *one) for one in ranges]


@pytest.mark.parametrize(
    ("speeds", "heads"),
    [
        ({1: 90, 4: 90, 8: 90}, [(0, LAST)]),
        ({1: 90, 4: 110, 8: 110}, [(0, 1)]),
        ({1: 110, 4: 90, 8: 110}, [(2, 5)]),
        ({1: 110, 4: 90, 8: 90}, [(2, LAST)]),
        ({1: 90, 4: 110, 8: 90}, [(0, 1), (6, LAST)]),
    ],
)
def test_so_does_a_number_of_query_heads_a_key_head(speeds, heads) -> None:
    found = list(slower(measured(512, fa4, group=group) for group, fa4 in speeds.items()))
    assert found == [Slower(*KIND, *one, 0, LAST) for one in heads]


def test_numbers_of_heads_that_differ_in_lengths_stay_apart() -> None:
    speeds = [measured(512, 90), measured(1024, 110), measured(512, 90, group=4), measured(1024, 90, group=4)]
    assert list(slower(speeds)) == [Slower(*KIND, 0, 1, 0, 724), Slower(*KIND, 2, LAST, 0, LAST)]


def test_several_problems_of_a_length_count_together() -> None:
    assert list(slower([measured(512, 80), measured(512, 130)])) == []
    assert len(list(slower([measured(512, 70), measured(512, 130)]))) == 1


def test_the_table_that_is_shipped_is_of_hopper_and_has_the_passes_that_each_kind_has() -> None:
    table = read_table(TABLE)
    passes = {kind: {one.pass_ for one in table if one.kind == kind} for kind in KINDS}
    assert passes == {"dense": {"fwd", "bwd"}, "packed": {"fwd", "bwd"}, "cache": {"fwd"}}
    assert {one.kind for one in table} == set(KINDS)
    assert {one.head_dim for one in table} == {64, 96, 128, 192, 256}
    assert "#define FA4_CONFIG_MEASURED(X) X(90)" in list(table_lines(table))


def test_packed_sequences_and_caches_go_by_figures_of_their_own() -> None:
    backward = Measured(90, "packed", "bwd", 64, "full", 1, 512, 90, 100)
    late, soon = measured(512, 90), measured(512, 110, kind="packed")
    _, rows = table_lines([late, soon, backward, measured(512, 90, kind="cache")])
    assert "X(90, fwd, 128, causal, dense, " in rows
    assert "X(90, fwd, 128, causal, packed, " not in rows
    assert "X(90, fwd, 128, causal, cache, " in rows
    assert "X(90, bwd, 64, full, dense, " not in rows
    assert "X(90, bwd, 64, full, packed, " in rows


def point(arch: int, seqlen: int, fa2: float) -> dict[str, object]:
    shape = {"kernel": "fwd", "head_dim": 64, "mask": "full", "batch": 1, "seqlen": seqlen, "heads_q": 8, "heads_k": 2}
    return {"arch": arch, "kind": "dense", **shape, "fa4": 200.0, "fa2": fa2}


def test_a_table_that_is_written_again_keeps_what_was_not_measured_again(tmp_path) -> None:
    path = tmp_path / "mine.csv"
    write_table(path, "one GPU", [point(90, 512, 1.0), point(90, 1024, 2.0)])
    write_table(path, "another GPU", [point(120, 512, 3.0)])
    write_table(path, "the first GPU again", [point(90, 1024, 250.5)])
    found = [(one.arch, one.seqlen, one.group, one.fa4, one.fa2) for one in read_table(path)]
    assert found == [(90, 512, 4, 200, 1), (90, 1024, 4, 200, 250.5), (120, 512, 4, 200, 3)]
    notes = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert notes[1:] == ["# 120: another GPU", "# 90: the first GPU again"]
    assert [(one.arch, one.shortest) for one in slower(read_table(path))] == [(90, 725)]
