"""The archive that candle links: ``run_mha`` of one argument list over a library's own objects."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parent / "candle_source"
"""Our C sources. They are not beside those of the library, whose digest is part of every recipe."""


def sources_of(arguments: int) -> tuple[str, ...]:
    """The files that make ``run_mha`` with 35, 37 or 45 arguments."""
    return ("mha_arguments.c", "mha_run.c", f"run_mha_{arguments}.c")
