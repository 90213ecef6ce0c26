"""Tables that age, each in one file with its source and date, and its loader."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

_PACKAGE = Path(__file__).parents[1]
COPIES = Path(__file__).with_name("tables.json")
"""All tables once more, by the names of their files: reading TOML takes longer than most answers.

``scripts/write_tables.py`` writes it, and a test says when it is behind.
"""


def read_table(path: Path) -> dict[str, Any]:
    """What a TOML file of this package holds.

    :raises FileNotFoundError: when it is not there.
    """
    if path.is_relative_to(_PACKAGE):
        copy: dict[str, Any] = _copies()[path.relative_to(_PACKAGE).as_posix()]
        return copy
    from flashdepot.files.atomic import read_toml  # noqa: PLC0415

    return read_toml(path)


@cache
def table(name: str) -> dict[str, Any]:
    """A table of this folder, by the name of its file without the ending."""
    return read_table(Path(__file__).with_name(f"{name}.toml"))


@cache
def _copies() -> dict[str, Any]:
    copies: dict[str, Any] = msgspec.json.decode(COPIES.read_bytes())
    return copies
