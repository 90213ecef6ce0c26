"""Which torch exports which symbols."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.facts import read_table

SYMBOLS = Path(__file__).with_name("torch_symbols.csv")
"""The table that ``scripts/torch_symbols.py`` writes."""


@cache
def rows() -> tuple[Mapping[str, str], ...]:
    """The rows of the table, one a symbol."""
    with SYMBOLS.open(newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def about() -> Mapping[str, Any]:
    """Which torches the table was made of, and what of them no symbol tells."""
    return read_table(Path(__file__).with_suffix(".toml"))


@cache
def patterns() -> tuple[Mapping[str, Any], ...]:
    """The patterns of symbols that one line of a log shows, each with the torches that export such a symbol."""
    return tuple(read_table(Path(__file__).with_name("torch_symbol_patterns.toml"))["symbol"])
