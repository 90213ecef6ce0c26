"""The table of torch's symbols grows by a minor without losing what it says of older ones."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from flashdepot.diagnose.explain.machine import built_for
from flashdepot.facts.builds import about_torch_symbols, torch_symbols
from flashdepot.model.target import Version

SCRIPT: Any = runpy.run_path(str(Path(__file__).parents[2] / "scripts/torch_symbols.py"))
NEWER = [(Version("2.12"), frozenset({"stays", "goes", "was"})), (Version("2.13"), frozenset({"stays", "comes"}))]


@pytest.mark.parametrize(
    ("row", "longer"),
    [
        (("stays", "", ""), [("stays", "", "")]),
        (("goes", "2.3", ""), [("goes", "2.3", "2.12")]),
        (("gone", "", ""), [("gone", "", "2.11")]),
        (("old", "2.1", "2.4"), [("old", "2.1", "2.4")]),
        (("was", "2.1", "2.4"), []),
        (("comes", "2.1", ""), []),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_row_says_what_newer_minors_export_and_one_with_a_gap_is_left_out(
    row: tuple[str, str, str], longer: list[tuple[str, str, str]]
) -> None:
    assert list(SCRIPT["longer"]([row], "2.11", NEWER)) == longer


@pytest.mark.parametrize(
    ("end", "torch"),
    [
        ("ib", "torch 2.0 to 2.9"),
        ("jb", "torch 2.10 to 2.13"),
        ("jbPNS0_19CUDAErrorLogCaptureE", "torch 2.14 or newer"),
    ],
)
def test_one_symbol_tells_for_which_torches_a_module_was_built(end: str, torch: str) -> None:
    assert str(built_for(f"_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_{end}")) == torch


def test_the_table_reaches_no_further_than_it_says() -> None:
    newest = Version.parse(about_torch_symbols()["newest"])
    assert all(Version.parse(row["until"]) < newest for row in torch_symbols() if row["until"])
