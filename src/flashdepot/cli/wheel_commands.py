"""``flashdepot wheel``."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from flashdepot.cli.forecast_page import to_json
from flashdepot.cli.terminal import Terminal
from flashdepot.model.quantities import duration, size
from flashdepot.resolve.library import LibraryResult
from flashdepot.wheel import Wheel


@click.command(
    epilog=examples(
        "flashdepot wheel --arch 90",
        "flashdepot wheel --profile inference --arch 80,90 --out dist",
        "flashdepot wheel --arch 90 --target linux-x86_64,linux-aarch64,windows-x86_64 --out dist",
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
    o.farm_option,
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
    farm: str | None,
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
    Prints the wheel's path. For several targets, as in --target linux-x86_64,windows-x86_64, it makes a wheel each, whose
    device code is compiled once.
    """
    started = time.monotonic()
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json, yes=yes)
    host, opened, limits = load_host(host_file), open_depot(depot), o.limits(jobs, memory, farm)
    requests = [o.with_project(one) for one in o.each_target(words)]
    if dry_run:
        then = f"Then a wheel of it is written into {out.absolute()}."
        plans = [plan_library(r, host=host, depot=opened, limits=limits, events=events) for r in requests]
        if as_json:
            _print([to_json(plan) for plan in plans])
            return
        for plan in plans:
            tell_plan(plan, as_json=False, then=then)
        return
    documents = []
    for request in requests:
        made, library = api.wheel(request, out=out, host=host, depot=opened, limits=limits, events=events)
        seconds, started = time.monotonic() - started, time.monotonic()
        documents.append({**_document(made, library), "seconds": round(seconds, 3)})
        if not as_json:
            if not quiet:
                contents = library.manifest.selection
                say(f"flash-attn {made.version}: {contents}; {size(made.size)}, in {duration(seconds)}")
            answer(str(made.path))
    if as_json:
        _print(documents)


def _print(documents: Sequence[object]) -> None:
    """One document for one target, a list for several."""
    print_json(documents[0] if len(documents) == 1 else list(documents))


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
        **({"workers": dict(library.workers)} if library.workers else {}),
    }
