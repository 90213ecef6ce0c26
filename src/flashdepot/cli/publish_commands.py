"""``flashdepot index`` and ``flashdepot publish``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flashdepot import api
from flashdepot.api import publishing
from flashdepot.cli.common import command, depot_option, flag, option, options, path_option
from flashdepot.cli.library_commands import describe_plan, plan_document
from flashdepot.cli.options import build_options, names_option
from flashdepot.cli.output import View, say, warn
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.model.limits import Limits, counted, duration, size
from flashdepot.publish import FAILED, REPORT_NAME, PartReport, PublishReport, problem_document, read_matrix
from flashdepot.resolve.consent import sentence, together
from flashdepot.wheel import parse_names


@command(
    "flashdepot index public --url https://wheels.example.org/",
    "flashdepot index public dist",
    "flashdepot index public --from team",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("wheels", metavar="[WHEEL|DIR]...", nargs=-1, type=click.Path(path_type=Path, exists=True))
@options(
    option(
        "--url URL  Address that DIR is served under, for the commands on its page.  [default: the last one]",
        default="",
    ),
    option("--from REMOTE  Take every library of this remote that a trusted key has signed.", to="source"),
    names_option,
    flag("--jax  Without a WHEEL: also flashdepot-jax of every library, for JAX."),
    depot_option,
)
def index(
    folder: Path, wheels: tuple[Path, ...], url: str, source: str | None, names: str, depot: Depot, *, jax: bool
) -> View:
    """Write a package index that pip and uv install from: a folder of static files for any web server.

    Without a WHEEL, the index gets a wheel of every library in the depot, or with --from of every library of a remote;
    with a folder of wheels, those in it. What the index had before stays. It is signed with your key, if you have one.
    Prints the folder's path.
    """
    files = [file for wheel in wheels for file in (sorted(wheel.glob("*.whl")) if wheel.is_dir() else [wheel])]
    if wheels and not files:
        raise UsageError(f"{wheels[0]} has no wheel in it.", hint="Make one: flashdepot wheel --out DIR")
    site = api.index(
        folder, files, url=url, source=source, names=parse_names(names), jax=jax, depot=depot, events=terminal()
    )
    rows, small = site.record.wheels, site.record.names
    subindexes = {
        subindex.name: {"wheels": len(subindex.offers), "taken": [wheel.filename for wheel in subindex.taken]}
        for subindex in site.subindexes
    }
    document = {"path": str(site.path), "url": site.record.url, "added": list(site.added), "indexes": subindexes}
    said = (
        f"{counted(len(rows) + len(small), 'wheel')}, "
        f"{size(sum(row.size for row in (*rows, *small)))}, at "
        f"{len(site.subindexes)} addresses; {len(site.added)} new"
    )
    return View(document, [str(site.path)], [said])


@command(
    "flashdepot publish publish.toml --dry-run",
    "flashdepot publish publish.toml",
    "flashdepot publish publish.toml --no-push --out dist --json",
)
@click.argument("matrix", metavar="MATRIX.toml", type=click.Path(path_type=Path))
@options(
    path_option(
        "--out DIR  Write the wheels and the report into this folder.  [default: the file's, or dist next to it]"
    ),
    flag("--no-push  Write to no remote: to try a file, and for jobs that run other people's code."),
    flag("--dry-run  Say what would be fetched and compiled for each part; make nothing."),
    build_options,
    depot_option,
)
def publish(matrix: Path, out: Path | None, limits: Limits, depot: Depot, *, no_push: bool, dry_run: bool) -> View:
    """Make the libraries and wheels of every combination in a matrix file, test them, and push them to remotes and an index.

    What exists is reused, so a run that was stopped continues. A part that fails does not stop the others;
    the exit code is that of the first failure. The report is printed and kept with the wheels. docs/publishing.md has
    the format of the file.
    """
    read, events = read_matrix(matrix), terminal()
    if dry_run:
        return _plan(publishing.plan_publish(read, depot=depot, limits=limits, events=events))

    def tell(done: PartReport) -> None:
        say(_line(done))
        if done.problem is not None:
            warn(f"{done.part.name}: {done.problem.message} {done.problem.hint}".rstrip())

    report = publishing.publish(
        read, out=out, may_push=not no_push, depot=depot, limits=limits, events=events, on_part=tell
    )
    if report.problem is not None:
        missing = "The index" if report.matrix.index else "A small wheel"
        warn(f"{missing} was not written: {report.problem.message} {report.problem.hint}".rstrip())
    return View(report.to_json(), [str(report.out / REPORT_NAME)], [_summary(report)], status=report.exit_code)


def _plan(planned: Sequence[publishing.PlannedPart]) -> View:
    rows, lines = list[dict[str, Any]](), []
    for one in planned:
        row: dict[str, Any] = {"name": one.part.name, "words": dict(one.part.words)}
        said = f"cannot be made: {one.problem}"
        if one.plan is not None:
            row["plan"] = plan_document(one.plan)
            said = sentence(one.forecast) if one.forecast is not None else describe_plan(one.plan)
        if one.problem is not None:
            row["problem"] = problem_document(one.problem)
        rows.append(row)
        lines.append(f"{one.part.name}\n  {said}")
    forecasts = list(filter(None, (one.forecast for one in planned)))
    if len(forecasts) > 1:
        lines.append(f"All parts together\n  {sentence(together(forecasts))}")
    failed = [one.problem.exit_code for one in planned if one.problem is not None]
    return View({"status": "planned", "parts": rows}, lines, status=failed[0] if failed else 0)


def _line(done: PartReport) -> str:
    words = {"hit": "was there", "fetched": "fetched", "built": f"built, {counted(done.compiled, 'kernel')} compiled"}
    if done.status == FAILED:
        return f"failed     {done.part.name}"
    pushed = "".join(f"; {name}: {pushed}" for name, pushed in done.pushed.items())
    return f"{words[done.status]}  {done.part.name}: {done.wheel}, {size(done.size)}, {duration(done.seconds)}{pushed}"


def _summary(report: PublishReport) -> str:
    signed = f", signed by {report.signer}" if report.signer else ""
    return (
        f"Parts: {len(report.parts)}; built {report.count('built')}, fetched {report.count('fetched')}, "
        f"there already {report.count('hit')}, failed {report.count(FAILED)}{signed}."
    )
