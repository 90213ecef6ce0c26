"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.cli.common import printable


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns; a terminal's width is kept to, a pipe gets whole lines."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console.print(shown, soft_wrap=not console.is_terminal)
