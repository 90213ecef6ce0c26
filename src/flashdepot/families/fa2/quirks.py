"""Where versions of flash-attention differ in a way that the C layer must know, as data: ``quirks.toml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from flashdepot.facts import read_table

_FILE = Path(__file__).with_name("quirks.toml")


def dq_index_64_since() -> str:
    """The first version whose backward kernels index the float gradient of q with 64 bits."""
    since: str = _data()["dq_index_64_bits"]["since"]
    return since


def indexes_dq_with_64_bits(version: str) -> bool:
    """Whether the backward kernels of that version do; not known of a tree without a version, so no."""
    try:
        return Version(version) >= Version(dq_index_64_since())
    except InvalidVersion:
        return False


@cache
def _data() -> dict[str, Any]:
    return read_table(_FILE)
