"""What ``get`` and ``build`` share when something must be built: limits, progress, and the words around them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flashdepot.build.library import Options
from flashdepot.build.limits import Limits
from flashdepot.build.progress import BuildProgress, Silent, Snapshot
from flashdepot.cli.common import duration, printable, say, size, warn
from flashdepot.cli.options import parse_memory
from flashdepot.depot import Depot
from flashdepot.doctor import forewarn
from flashdepot.errors import CompileError
from flashdepot.host import probe
from flashdepot.host.memory import usable_cores
from flashdepot.model.host import HostRecord
from flashdepot.resolve.build import build
from flashdepot.resolve.library import Need, Rejected, Result

if TYPE_CHECKING:
    from typing_extensions import Self

_REASONS_SHOWN = 3


def limits(jobs: int | None, memory: str | None, *, keep_going: bool = False) -> Limits:
    """The engine's limits from options; :raises UsageError: for an amount of memory that is none."""
    return Limits(
        jobs=jobs or usable_cores(),
        memory=parse_memory(memory) if memory else None,
        keep_going=keep_going,
    )


def tell_rejected(rejected: Rejected) -> None:
    """Say why what is stored was not taken."""
    for manifest, reasons in rejected[:_REASONS_SHOWN]:
        say(f"The stored library {manifest.recipe_key[:12]} was not taken: {'; '.join(reasons)}.")
    if (more := len(rejected) - _REASONS_SHOWN) > 0:
        say(f"Neither were {more} others; 'flashdepot depot ls' shows them.")


def build_for(
    need: Need,
    depot: Depot,
    bounds: Limits,
    *,
    quiet: bool,
    verbose: bool,
    front_end: str = "shared",
    compress: str = "size",
) -> Result:
    """Build what a request needs, telling how it goes."""
    host = probe(depot=depot.root)
    if not quiet:
        for finding in forewarn(host, need.request.selection.units):
            warn(f"{finding.seen} {finding.why} {finding.mend}")
    with show_progress(quiet=quiet, verbose=verbose) as progress:
        try:
            return build(need, depot, host, bounds, Options(front_end, compress), progress)
        except CompileError as error:
            raise explained(error, host) from None


def explained(error: CompileError, host: HostRecord) -> CompileError:
    """The error with what its log shows in the place of its hint: what mends it here, and where the log is."""
    from flashdepot.doctor.explain import explain  # noqa: PLC0415  (only a failure needs it)

    if error.log is None or not error.log.is_file():
        return error
    with error.log.open("rb") as log:
        findings = explain(log, host).findings
    if not findings:
        return error
    cause = findings[0]
    lines = [f"{cause.id}: {cause.title}", *cause.facts, "What mends it:", *(f"  {fix}" for fix in cause.fix)]
    hint = "\n  ".join([*lines, f"The whole output: {error.log}"])
    return CompileError(error.message, hint=hint, log=error.log)


@contextlib.contextmanager
def show_progress(*, quiet: bool, verbose: bool) -> Iterator[BuildProgress]:
    """Progress on standard error: a live display on a terminal, a line a unit elsewhere, nothing when quiet."""
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        with _Live(verbose=verbose) as live:
            yield live
    else:
        yield _Lines()


class _Lines:
    """What is to be done, then one line for each finished unit: for logs, and for people who read them later."""

    def __init__(self) -> None:
        self._begun = False

    def note(self, text: str) -> None:
        say(text)

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        left = f", about {duration(state.eta)} left" if state.done < state.total else ""
        say(f"[{state.done}/{state.total}] {name} in {duration(seconds)}{left}")

    def update(self, state: Snapshot) -> None:
        if not self._begun:
            self._begun = True
            say(f"{state.total - state.done} of {state.total} compilations to do, about {duration(state.eta)}.")


class _Live:
    """A bar, what runs, memory in use and time left, drawn again four times a second."""

    def __init__(self, *, verbose: bool) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)
        self._verbose = verbose
        self._begun = time.monotonic()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, markup=False)

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
        head.add_row(
            f"{state.done}/{state.total} units",
            ProgressBar(total=state.total, completed=state.done, width=30),
            f"{passed}, about {duration(state.eta)} left",
            memory,
        )
        rows = Table.grid()
        rows.add_row(head)
        for name in state.running:
            rows.add_row(Text(f"  compiling {printable(name)}"))
        for name in state.elsewhere:
            rows.add_row(Text(f"  waiting for another process: {printable(name)}"))
        self._live.update(rows)
