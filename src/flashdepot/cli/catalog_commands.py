"""``flashdepot catalog update|ls|stats|matrix``."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from flashdepot.api import wheels as api
from flashdepot.catalog import Catalog
from flashdepot.catalog.matrix import (
    Filter,
    abi_word,
    in_ranges,
    package_words,
    platform_words,
    python_of,
    release_name,
    rows,
    summaries,
)
from flashdepot.cli.app import Commands
from flashdepot.cli.common import Number, command, depot_option, flag, into, option
from flashdepot.cli.output import Table, View, fields, say, wants_json, warn
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, NetworkError, not_one_of
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.limits import counted, size
from flashdepot.model.wheel import Interpreter

if TYPE_CHECKING:
    from flashdepot.catalog.refresh import RefreshOutcome


def _filter(python: str, **wanted: str) -> Filter:
    return Filter(python=Interpreter.named(python) if python else None, **wanted)


filter_options = into(
    "wanted",
    _filter,
    option("--version 2.8.3  flash-attn version, or its beginning.", default=""),
    option("--torch 2.8  Version of torch.", default=""),
    option("--torch-cuda 12|12.8  CUDA version in the wheel's name.", to="cuda", default=""),
    option("--python-tag 3.12|cp312  Python that can use the wheel; cp313t is free-threaded.", to="python", default=""),
    option("--platform win|aarch64|...  Part of the wheel's platform tag.", default=""),
    option("--source NAME  Collection that has the wheel.", default=""),
)
"""The fields of a :class:`flashdepot.catalog.matrix.Filter`, under their names."""


@click.group(cls=Commands)
def catalog() -> None:
    """List the FlashAttention wheels that others publish."""


@command(
    "flashdepot catalog update",
    "flashdepot catalog update --source official --source mjun0812",
    "flashdepot catalog update --index wheels=https://example.org/simple/",
    of=catalog,
)
@option("--source NAME  Only this source (repeatable).  [default: all]", to="names", multiple=True)
@option(
    "--index [NAME=]URL  Add a package index as a source, and remember it (repeatable).", to="indexes", multiple=True
)
@depot_option
def update(names: tuple[str, ...], indexes: tuple[str, ...], depot: Depot) -> View:
    """Update the list of published wheels from GitHub, the Hugging Face Hub, and package indexes that you added.

    GITHUB_TOKEN is sent to GitHub if it is set. If a source does not answer, its old listing is kept and the exit code
    is 7.
    """
    outcomes = []
    for outcome in api.update_catalog(names, indexes, depot=depot, events=terminal()):
        outcomes.append(outcome)
        for entry in outcome.strange:
            warn(f"{outcome.source}: skipped {entry}.")
        if not outcome.error:
            changed = "as before" if outcome.unchanged else f"{outcome.added} new, {outcome.removed} gone"
            say(f"{outcome.source}: {outcome.wheels} wheels, {changed}")
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise _failure(failed, len(outcomes))
    return View([outcome.to_json() for outcome in outcomes])


def _failure(failed: list[RefreshOutcome], asked: int) -> FlashdepotError:
    errors = [outcome.error for outcome in failed if outcome.error]
    if len(errors) == 1:
        return errors[0]
    for outcome in failed:
        say(f"{outcome.source}: {outcome.error.message if outcome.error else ''} Its old listing is kept.")
    names = ", ".join(outcome.source for outcome in failed)
    return NetworkError(f"{len(errors)} of {asked} sources did not answer: {names}.", hint=errors[0].hint)


@command(
    "flashdepot catalog ls --version 2.8.3 --torch 2.8 --python-tag cp312",
    "flashdepot catalog ls --platform win --torch-cuda 13 --json",
    "pip install $(flashdepot catalog ls --version 2.8.3 --torch 2.8 --python-tag 3.12 --limit 1 --urls)",
    of=catalog,
)
@option("--limit N  Only so many; 0 for all.  [default: 50, and all with --json]", type=Number(0))
@flag("--urls  Print only the address of each, for pip install.")
@filter_options
@depot_option
def ls(limit: int | None, wanted: Filter, depot: Depot, *, urls: bool) -> View:
    """List wheels, newest flash-attn first."""
    loaded, selected = _selected(depot, wanted)
    found = [wheel for row in rows(selected) for wheel in row]
    most = limit if limit is not None else 0 if wants_json() else 50
    shown = found[:most] if most else found
    if len(shown) < len(found):
        said = (
            f"{len(shown)} of {len(found)} wheels shown: narrow the list with --torch, --torch-cuda or --python-tag, or "
            "show all with --limit 0."
        )
    else:
        said = f"{counted(len(found), 'wheel')}. --urls prints their addresses." if found else "No wheel matches."
    columns = ("flash-attn", "torch", "CUDA", "ABI", "Python", "platform", "source", "release", "size", "")
    return View(
        lambda: [dict(zip(wheel._fields, wheel, strict=True)) for wheel in shown],
        [wheel.url for wheel in shown] if urls else [Table(columns, [_cells(wheel) for wheel in shown])],
        then=[] if urls else [said, _age(loaded)],
    )


@command(of=catalog)
@filter_options
@depot_option
def stats(wanted: Filter, depot: Depot) -> View:
    """List the collections: whose they are, how many wheels each has, and when it was listed."""
    loaded, found = _selected(depot, wanted)
    counts = Counter(wheel.source for wheel in found)
    known = [
        {**fields(c, "name", "kind", "page", "licence", "listed"), "wheels": counts[c.name]} for c in loaded.collections
    ]
    columns = ("collection", "kind", "wheels", "listed", "licence", "page")
    rows = [
        (c.name, c.kind, str(counts[c.name]), c.listed[:10], c.licence or "not said", c.page)
        for c in loaded.collections
    ]
    document = {"wheels": len(found), "collections": known}
    return View(document, [Table(columns, rows)], then=[f"{counted(len(found), 'wheel')}.", _age(loaded)])


@command("flashdepot catalog matrix --version 2.8.3", "flashdepot catalog matrix --html matrix.html", of=catalog)
@option(
    "--html FILE  Write the whole table as one HTML page with filters.", type=click.Path(path_type=Path, dir_okay=False)
)
@filter_options
@depot_option
def matrix(html: Path | None, wanted: Filter, depot: Depot) -> View:
    """Show which flash-attn there is for which torch, CUDA, Python and platform."""
    loaded, found = _selected(depot, wanted)
    if html is not None:
        from flashdepot.catalog.matrix_page import page  # noqa: PLC0415
        from flashdepot.files.disk import write_named  # noqa: PLC0415

        text = page(Catalog(tuple(found), loaded.collections, ())).encode()
        write_named(html, text, "--html FILE")
        return View(
            {"path": str(html), "wheels": len(found)},
            said=[f"Wrote {html}: {counted(len(found), 'wheel')}, {size(len(text))}."],
        )
    table = summaries(found)
    cells = [
        (
            s.version, s.torch or "any", " ".join(s.cuda), in_ranges(s.python),
            ", ".join(s.platforms), " ".join(s.sources), str(s.wheels),
        )
        for s in table
    ]  # fmt: skip
    columns = ("flash-attn", "torch", "CUDA", "Python", "platforms", "sources", "wheels")
    said = f"{counted(len(found), 'wheel')}. --html FILE writes the whole table with filters and links."
    return View([asdict(s) for s in table], [Table(columns, cells)], then=[said, _age(loaded)])


def _age(loaded: Catalog) -> str:
    now = datetime.now(timezone.utc)
    return f"The catalog was {loaded.age(now)}; 'flashdepot catalog update' lists what is published now."


def _selected(depot: Depot, wanted: Filter) -> tuple[Catalog, list[PublishedWheel]]:
    loaded = api.catalog(depot, terminal())
    names = [collection.name for collection in loaded.collections]
    if wanted.source and wanted.source not in names:
        raise not_one_of(wanted.source, "a source", names, hint="flashdepot catalog stats shows them.")
    return loaded, [wheel for wheel in loaded.wheels if wanted.accepts(wheel)]


def _cells(wheel: PublishedWheel) -> tuple[str, ...]:
    return (
        package_words(wheel),
        wheel.torch,
        wheel.cuda,
        abi_word(wheel),
        python_of(wheel),
        platform_words(wheel),
        wheel.source,
        release_name(wheel),
        size(wheel.size) if wheel.size else "",
        "" if wheel.seen else "expected",
    )
