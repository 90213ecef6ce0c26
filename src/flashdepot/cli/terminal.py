"""What a person at a terminal, or the reader of a log, sees of a call of the API. Everything goes to standard error."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from flashdepot.cli.output import ask, is_quiet, is_verbose, printable, say, wants_json, warn
from flashdepot.events import BuildProgress, Download, Events, Snapshot
from flashdepot.model.limits import duration, size

if TYPE_CHECKING:
    from typing_extensions import Self


_SM80 = re.compile(r"_sm80(?=$|[^0-9a-z])")
_SHORTEST_BAR = 5
_SILENCE = 30.0
"""Seconds without a line after which a log gets one."""


class Terminal(Events):
    """Notes, warnings and progress as lines; on a terminal bars and live displays instead.

    :param quiet: warnings only.
    :param verbose: a line for each compiled unit on a terminal as well.
    :param may_ask: whether somebody may be there to answer.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, may_ask: bool = False) -> None:
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
            return contextlib.nullcontext(BuildProgress())
        return _Live(verbose=self._verbose) if sys.stderr.isatty() else contextlib.nullcontext(_Lines())

    def confirm(self, question: str) -> bool | None:
        """Ask, where somebody is there to answer."""
        return ask(question) if self._may_ask else None


def terminal() -> Terminal:
    """As the user of the command that runs wants it."""
    return Terminal(quiet=is_quiet(), verbose=is_verbose(), may_ask=not wants_json())


def _line(name: str) -> Download:
    named: list[str] = []

    def tell(_done: int, total: int | None) -> None:
        if not named:
            named.append(name)
            say(f"Fetching {name}{f', {size(total)}' if total else ''}.")

    return tell


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Download]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(printable(name), total=None, visible=False)
        yield lambda done, total: bars.update(task, completed=done, total=total, visible=True)


class _Lines(BuildProgress):
    """A line for each finished kernel, and one now and then between them: for logs, and anyone who reads them later."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def note(self, text: str) -> None:
        say(text)
        self._said = time.monotonic()

    def download(self, name: str) -> Download:
        return _line(name)

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        self.note(f"[{_count(state)}] {_shown(name)} in {duration(seconds)}{_left(state)}")

    def update(self, state: Snapshot) -> None:
        if time.monotonic() - self._said >= _SILENCE:
            self.note(f"[{_count(state)}] {state.fraction:.0%} done{_left(state)}")


def _shown(name: str) -> str:
    """A unit's name without ``_sm80``, which upstream's file names have whatever GPU they are compiled for."""
    return printable(_SM80.sub("", name))


def _count(state: Snapshot) -> str:
    """One noun from the first line to the last: kernels, their host sides and the C layer are all steps."""
    return f"{state.done}/{state.total} steps"


def _left(state: Snapshot) -> str:
    return f", about {duration(state.eta)} left" if state.eta >= 1 else ""


class _Live(BuildProgress):
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
        self._console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

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
            self.note(f"{_shown(name)} in {duration(seconds)}")
        self.update(state)

    def update(self, state: Snapshot) -> None:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        if not self._shown:
            self._live.start()
            self._shown = True
        passed = duration(time.monotonic() - self._begun)
        words = [_count(state), f"{state.fraction:.0%} after {passed}{_left(state)}"]
        words += [f"{size(state.memory)} in use"] if state.memory else []
        head = Table.grid(padding=(0, 2))
        for _ in words[1:]:
            head.add_column(no_wrap=True)
        room = self._console.width - sum(len(word) + 2 for word in words)
        bar = [ProgressBar(total=1, completed=state.fraction, width=min(30, room))] if room >= _SHORTEST_BAR else []
        head.add_row(words[0], *bar, *words[1:])
        rows = Table.grid()
        rows.add_column(no_wrap=True, overflow="ellipsis")
        rows.add_row(head)
        for name in state.running:
            rows.add_row(Text(f"  compiling {_shown(name)}"))
        for name in state.elsewhere:
            rows.add_row(Text(f"  waiting for another process: {_shown(name)}"))
        self._live.update(rows)
