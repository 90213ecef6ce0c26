"""Which family is faster: what a table says, and how one is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.kernels.fa4.speed import KINDS, TABLE, Measured, Slower, read_table, slower, table_lines, write_table

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
def test_a_length_stands_for_those_around_it(speeds: dict[int, float], ranges: list[tuple[int, int]]) -> None:
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
def test_so_does_a_number_of_query_heads_a_key_head(speeds: dict[int, float], heads: list[tuple[int, int]]) -> None:
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


def test_a_table_that_is_written_again_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    write_table(path, "one GPU", [point(90, 512, 1.0), point(90, 1024, 2.0)])
    write_table(path, "another GPU", [point(120, 512, 3.0)])
    write_table(path, "the first GPU again", [point(90, 1024, 250.5)])
    found = [(one.arch, one.seqlen, one.group, one.fa4, one.fa2) for one in read_table(path)]
    assert found == [(90, 512, 4, 200, 1), (90, 1024, 4, 200, 250.5), (120, 512, 4, 200, 3)]
    notes = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert notes[1:] == ["# 120: another GPU", "# 90: the first GPU again"]
    assert [(one.arch, one.shortest) for one in slower(read_table(path))] == [(90, 725)]
