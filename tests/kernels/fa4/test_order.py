"""The order in which walking blocks take tiles, which the kernels compute with the same lines."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flashdepot.kernels.fa4

_FILE = Path(flashdepot.kernels.fa4.__file__).parent / "worker" / "order.py"
_SPEC = importlib.util.spec_from_file_location("order", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_ORDER = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_ORDER)

H200 = 132
"""Its SMs, and so the blocks of a walking kernel."""


def taken(first: int, blocks: int, rows: int, heads: int) -> Iterator[tuple[int, int]]:
    """The head and row of each tile that a block takes."""
    number = 0
    while True:
        head, row, is_one = _ORDER.tile_of(
            number, first, blocks, rows, heads, lambda says, this, that: this if says else that
        )
        if not is_one:
            return
        yield head, row
        number += 1


@given(st.integers(1, 150), st.integers(1, 40), st.integers(1, 200))
def test_every_tile_is_taken_once(blocks: int, rows: int, heads: int) -> None:
    blocks = min(blocks, rows * heads)  # as the kernel's grid is
    tiles = [tile for first in range(blocks) for tile in taken(first, blocks, rows, heads)]
    assert sorted(tiles) == [(head, row) for head in range(heads) for row in range(rows)]


def busiest(rows: int, heads: int, window: float = math.inf) -> float:
    """The work of the block with most of it, over the mean; a tile's is the keys that it sees and what begins and ends it."""
    work = [1.5 + min(row + 1, window + 1) for row in range(rows)]
    sums = [sum(work[row] for _, row in taken(first, H200, rows, heads)) for first in range(H200)]
    return max(sums) / (sum(sums) / H200)


@pytest.mark.parametrize("length", [512, 1024, 2048, 4096, 16384])
@pytest.mark.parametrize("heads", [8, 16, 32])
def test_causal_tiles_are_dealt_out_evenly(length: int, heads: int) -> None:
    # of 16,384 rows of queries in tiles of 128; one after the other in turns gave 1.03 to 1.69
    assert busiest(length // 128, 16384 // length * heads) < 1.1


@pytest.mark.parametrize("length", [512, 1024, 2048])
def test_tiles_of_a_window_are_dealt_out_evenly(length: int) -> None:
    # of a quarter of the keys, 16 heads; in rows' own order it gave 1.10 to 1.13, and 1.29 for a window of all
    assert busiest(length // 128, 16384 // length * 16, window=length // 512) < 1.06
    assert busiest(length // 128, 16384 // length * 16, window=length // 128) < 1.06
