"""What a person at a terminal, or the reader of a log, sees of a call of the API. Everything goes to standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from flashdepot.cli.common import ask, printable, say, warn
from flashdepot.events import BuildProgress, Download, Events, Forecast, Share, Silent, Snapshot
from flashdepot.model.quantities import duration, size

if TYPE_CHECKING:
    from typing_extensions import Self


_SILENCE = 30.0
"""Seconds without a line after which a log gets one."""


class Terminal(Events):
    """Notes, warnings and progress as lines; on a terminal bars and live displays instead.

    :param quiet: warnings only.
    :param verbose: a line for each compiled unit on a terminal as well.
    :param may_ask: whether somebody may be there to answer.
    :param yes: the answer to whether a long build may begin has been given.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, may_ask: bool = False, yes: bool = False) -> None:
        self._yes = yes
        self._quiet = quiet
        self._verbose = verbose
        self._may_ask = may_ask and sys.stdin.isatty() and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """A line, unless quiet."""
        if not self._quiet:
            say(text)

    def warn(self, text: str) -> None:
        """A line, quiet or not."""
        warn(text)

    def download(self, name: str) -> AbstractContextManager[Download]:
        """A bar on a terminal, one line elsewhere; from the first byte on: what is there already is not mentioned."""
        if self._quiet:
            return super().download(name)
        return _bar(name) if sys.stderr.isatty() else contextlib.nullcontext(_line(name))

    def building(self) -> AbstractContextManager[BuildProgress]:
        """A live display on a terminal, a line a unit elsewhere."""
        if self._quiet:
            return contextlib.nullcontext(Silent())
        return _Live(verbose=self._verbose) if sys.stderr.isatty() else contextlib.nullcontext(_Lines())

    def begin(self, forecast: Forecast) -> bool:
        """Say what will be done; ask before what takes long, where somebody is there to answer."""
        from flashdepot.cli.forecast_page import question, sentence  # noqa: PLC0415  (a hit begins nothing)

        if forecast.is_long and self._may_ask and not self._yes:
            return ask(question(forecast))
        self.note(sentence(forecast))
        return True

    def confirm(self, question: str) -> bool:
        """Ask, where somebody is there to answer."""
        return self._may_ask and ask(question)


def _line(name: str) -> Download:
    told: list[str] = []

    def tell(_done: int, total: int | None) -> None:
        if not told:
            told.append(name)
            say(f"Fetching {name}{f', {size(total)}' if total else ''}.")

    return tell


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Download]:
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


class _Lines:
    """A line for each finished kernel, and one now and then between them: for logs, and whoever reads them later."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def note(self, text: str) -> None:
        say(text)
        self._told = time.monotonic()

    def download(self, name: str) -> Download:
        return _line(name)

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        self.note(f"[{_count(state.kernels)} kernels] {name} in {duration(seconds)}{_left(state)}")

    def update(self, state: Snapshot) -> None:
        if time.monotonic() - self._told >= _SILENCE:
            what, share = _at(state)
            self.note(f"[{_count(share)} {what}] {state.fraction:.0%} done{_left(state)}")


def _at(state: Snapshot) -> tuple[str, Share]:
    """What a build is at: the first that is not whole of what takes longest, and the rest."""
    parts = {"kernels": state.kernels, "host sides": state.host_sides, "other sources": state.sources}
    return next(((what, share) for what, share in parts.items() if not share.is_whole), ("kernels", state.kernels))


def _count(share: Share) -> str:
    return f"{share.done}/{share.total}"


def _left(state: Snapshot) -> str:
    return f", about {duration(state.eta)} left" if state.eta >= 1 else ""


class _Live:
    """A bar that moves while compilers run, what runs, memory in use and time left, drawn again four times a second."""

    def __init__(self, *, verbose: bool) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)
        self._verbose = verbose
        self._begun = time.monotonic()
        self._shown = False
        self._bars = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.close()
        if self._shown:
            self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, markup=False)

    def download(self, name: str) -> Download:
        """A bar from the first byte to the last; there is never more than one."""
        shown: list[Download] = []

        def tell(done: int, total: int | None) -> None:
            if not shown:
                self._bars.close()
                shown.append(self._bars.enter_context(_bar(name)))
            shown[0](done, total)
            if done == total:
                self._bars.close()

        return tell

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        if self._verbose:
            self.note(f"{name} in {duration(seconds)}")
        self.update(state)

    def update(self, state: Snapshot) -> None:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        if not self._shown:
            self._live.start()
            self._shown = True
        head = Table.grid(padding=(0, 2))
        passed = duration(time.monotonic() - self._begun)
        memory = f"{size(state.memory)} in use" if state.memory else ""
        what, share = _at(state)
        head.add_row(
            f"{share.done} of {share.total} {what}",
            ProgressBar(total=1, completed=state.fraction, width=30),
            f"{state.fraction:.0%} after {passed}{_left(state)}",
            memory,
        )
        rows = Table.grid()
        rows.add_row(head)
        for name in state.running:
            rows.add_row(Text(f"  compiling {printable(name)}"))
        for name in state.elsewhere:
            rows.add_row(Text(f"  waiting for another process: {printable(name)}"))
        self._live.update(rows)
