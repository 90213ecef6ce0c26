"""``flashdepot wheel``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from flashdepot import api
from flashdepot.api.libraries import plan_library
from flashdepot.cli import options as o
from flashdepot.cli.common import (
    answer,
    depot_option,
    examples,
    host_option,
    json_option,
    load_host,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
    verbose_option,
)
from flashdepot.cli.forecast_page import tell as tell_plan
from flashdepot.cli.terminal import Terminal
from flashdepot.model.quantities import duration, size
from flashdepot.resolve.library import LibraryResult
from flashdepot.wheel import Wheel


@click.command(
    epilog=examples(
        "flashdepot wheel --arch 90",
        "flashdepot wheel --profile inference --arch 80,90 --out dist",
    )
)
@options(
    o.selection_options,
    click.option(
        "--out",
        metavar="DIR",
        type=click.Path(path_type=Path),
        default=".",
        help="Write the wheel into this folder.  [default: the current one]",
    ),
    o.jobs_option,
    o.memory_option,
    o.yes_option,
    o.dry_run_option,
    host_option,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def wheel(
    out: Path,
    jobs: int | None,
    memory: str | None,
    host_file: Path | None,
    depot: Path | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Make a Python wheel: one file for every torch and every Python 3.

    It contains upstream's unmodified package flash_attn and the library that 'flashdepot get' would take or build.
    Prints the wheel's path.
    """
    started = time.monotonic()
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json, yes=yes)
    request, host, opened, limits = (
        o.with_project(words),
        load_host(host_file),
        open_depot(depot),
        o.limits(jobs, memory),
    )
    if dry_run:
        plan = plan_library(request, host=host, depot=opened, limits=limits, events=events)
        tell_plan(plan, as_json=as_json, then=f"Then a wheel of it is written into {out.absolute()}.")
        return
    made, library = api.wheel(request, out=out, host=host, depot=opened, limits=limits, events=events)
    seconds = time.monotonic() - started
    if as_json:
        print_json({**_document(made, library), "seconds": round(seconds, 3)})
        return
    if not quiet:
        say(f"flash-attn {made.version}: {library.manifest.selection}; {size(made.size)}, in {duration(seconds)}")
    answer(str(made.path))


def _document(made: Wheel, library: LibraryResult) -> dict[str, object]:
    """What ``--json`` says of a wheel; ``status`` is that of the library in it."""
    return {
        "status": library.status,
        "path": str(made.path),
        "sha256": made.sha256,
        "size": made.size,
        "version": made.version,
        "tag": made.tag,
        "recipe_key": library.manifest.recipe_key,
    }
