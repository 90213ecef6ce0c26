"""How a download is shown: a bar on a terminal, one line elsewhere, nothing when quiet."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from flashdepot.cli.common import printable, say, size
from flashdepot.system.net import Progress


@contextlib.contextmanager
def show_download(name: str, *, quiet: bool) -> Iterator[Progress]:
    """Progress on standard error, from the first byte on: a file that is there already is not mentioned."""
    if quiet:
        yield lambda _done, _total: None
    elif sys.stderr.isatty():
        with _bar(name) as progress:
            yield progress
    else:
        told: list[str] = []

        def tell(_done: int, total: int | None) -> None:
            if not told:
                told.append(name)
                say(f"Fetching {name}{f', {size(total)}' if total else ''}.")

        yield tell


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Progress]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(printable(name), total=None, visible=False)
        yield lambda done, total: bars.update(task, completed=done, total=total, visible=True)
