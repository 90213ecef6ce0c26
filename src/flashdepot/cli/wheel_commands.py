"""``flashdepot wheel``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from flashdepot.cli import options as o
from flashdepot.cli.common import (
    answer,
    depot_option,
    duration,
    examples,
    host_option,
    json_option,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
    size,
    verbose_option,
)
from flashdepot.cli.obtaining import need_of, obtain_library
from flashdepot.depot import Depot
from flashdepot.families import obtain_sources
from flashdepot.resolve.library import Result, Wish
from flashdepot.wheel import Wheel, build_wheel


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
    depot: str | None,
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **wish: str | None,
) -> None:
    """Make a Python wheel: one file for every torch and every Python 3.

    It holds upstream's package flash_attn, unmodified, and the library, which is got as 'flashdepot get' gets it.
    Prints the wheel's path.
    """
    started = time.monotonic()
    opened = open_depot(depot)
    need = need_of(Wish(**wish), host_file, opened, quiet=quiet)
    result = obtain_library(need, opened, jobs, memory, quiet=quiet, verbose=verbose)
    made = wheel_of(result, need.sources, opened, out.absolute())
    seconds = time.monotonic() - started
    if as_json:
        print_json({**document(made, result), "seconds": round(seconds, 3)})
        return
    if not quiet:
        say(f"flash-attn {made.version}: {result.manifest.selection}; {size(made.size)}, in {duration(seconds)}")
    answer(str(made.path))


def wheel_of(result: Result, sources: Mapping[str, str], depot: Depot, folder: Path) -> Wheel:
    """The wheel of a library that was obtained, written into a folder; ``sources`` names that of each family."""
    trees = obtain_sources(sources, depot.layout.upstreams)
    return build_wheel(result.manifest, result.path, trees, folder)


def document(made: Wheel, result: Result) -> dict[str, object]:
    """What ``--json`` says of a wheel; ``status`` is the library's."""
    return {
        "status": result.status,
        "path": str(made.path),
        "sha256": made.sha256,
        "size": made.size,
        "version": made.version,
        "tag": made.tag,
        "recipe_key": result.manifest.recipe_key,
    }
