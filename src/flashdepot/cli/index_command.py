"""``flashdepot index``."""

from __future__ import annotations

from pathlib import Path

import click

from flashdepot import api
from flashdepot.cli.common import (
    answer,
    configured_remotes,
    depot_option,
    examples,
    json_option,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
    verbose_option,
)
from flashdepot.cli.terminal import Terminal
from flashdepot.model.quantities import size


@click.command(
    epilog=examples(
        "flashdepot index public --url https://wheels.example.org/",
        "flashdepot index public dist/*.whl",
        "flashdepot index public --from team",
    )
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("wheels", metavar="[WHEEL]...", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@options(
    click.option(
        "--url",
        metavar="URL",
        default="",
        help="Address that DIR is served under, for the commands on its page.  [default: the last one]",
    ),
    click.option(
        "--from",
        "source",
        metavar="REMOTE",
        help="Take every library of this remote that a key which you trust has signed.",
    ),
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def index(
    folder: Path,
    wheels: tuple[Path, ...],
    url: str,
    source: str | None,
    depot: Path | None,
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write a package index that pip and uv install from: a folder of static files for any web server.

    Without a WHEEL it takes a wheel of every library in the depot, or with --from of every library of a remote. What the
    index held before stays in it. It is signed with your key, if you have one. Prints the folder's path.
    """
    site = api.index(
        folder,
        wheels,
        url=url,
        source=source,
        remotes=configured_remotes(),
        depot=open_depot(depot),
        events=Terminal(quiet=quiet, verbose=verbose),
    )
    rows = site.record.wheels
    if as_json:
        shelves = {
            shelf.name: {"wheels": len(shelf.offers), "taken": [wheel.filename for wheel in shelf.taken]}
            for shelf in site.shelves
        }
        print_json({"path": str(site.path), "url": site.record.url, "added": list(site.added), "shelves": shelves})
        return
    if not quiet:
        variants = sum(bool(row.label) for row in rows)
        say(
            f"{len(rows) - variants} wheels and {variants} variants, {size(sum(row.size for row in rows))}, at "
            f"{len(site.shelves)} addresses; {len(site.added)} new"
        )
    answer(str(site.path))
