from __future__ import annotations

import pytest

from flashdepot.families.fa4.speed import UNEVEN, Measured, Slower, read_table, slower, table_lines

KIND = (90, "fwd", 128, "causal")


def measured(seqlen: int, fa4: float, fa2: float = 100) -> Measured:
    return Measured(*KIND, seqlen, fa4, fa2)


@pytest.mark.parametrize(
    ("speeds", "ranges"),
    [
        ({512: 120, 1024: 110}, []),
        ({512: 90, 1024: 110}, [(0, 724)]),
        ({512: 110, 1024: 90, 4096: 110}, [(725, 2048)]),
        ({512: 110, 1024: 90}, [(725, 2**31 - 1)]),
        ({512: 90, 1024: 90}, [(0, 724), (725, 2**31 - 1)]),
    ],
)
def test_a_length_stands_for_those_around_it(speeds: dict[int, float], ranges: list[tuple[int, int]]) -> None:
    found = list(slower(measured(seqlen, fa4) for seqlen, fa4 in speeds.items()))
    assert found == [Slower(*KIND, *one) for one in ranges]


def test_several_problems_of_a_length_count_together() -> None:
    assert list(slower([measured(512, 80), measured(512, 130)])) == []
    assert len(list(slower([measured(512, 70), measured(512, 130)]))) == 1


def test_the_table_that_is_shipped_is_of_hopper_and_has_both_passes() -> None:
    table = read_table()
    assert {(one.arch, one.pass_) for one in table} == {(90, "fwd"), (90, "bwd")}
    assert {one.head_dim for one in table} == {64, 96, 128, 192, 256}
    assert "#define FA4_CONFIG_MEASURED(X) X(90)" in list(table_lines(table, []))


def test_packed_sequences_go_by_figures_of_their_own() -> None:
    backward = Measured(90, "bwd", 64, "full", 512, 90, 100)
    _, rows = table_lines([measured(512, 90)], [measured(512, 110), backward])
    assert "X(90, fwd, 128, causal, 1, " in rows
    assert "X(90, fwd, 128, causal, 0, " not in rows
    assert "X(90, bwd, 64, full, 1, " not in rows
    assert "X(90, bwd, 64, full, 0, " in rows
    assert {one.pass_ for one in read_table(UNEVEN)} == {"fwd", "bwd"}
