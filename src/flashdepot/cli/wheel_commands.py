"""``flashdepot wheel``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from flashdepot import api
from flashdepot.api.libraries import plan_library
from flashdepot.cli import options as o
from flashdepot.cli.common import (
    answer,
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
from flashdepot.cli.library_commands import plan_document
from flashdepot.cli.library_commands import show_plan as tell_plan
from flashdepot.cli.options import machine_options
from flashdepot.cli.terminal import Terminal
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits, duration, size
from flashdepot.resolve.library import LibraryResult
from flashdepot.wheel import Wheel, build_jax_wheel, build_names, parse_names


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
    o.names_option,
    click.option("--jax", is_flag=True, help="Also flashdepot-jax: the same library for JAX, without torch."),
    o.build_options,
    o.dry_run_option,
    machine_options,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def wheel(
    out: Path,
    names: str,
    limits: Limits,
    host: HostRecord | None,
    depot: Path | None,
    *,
    jax: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Make a Python wheel: one file for every torch and every Python 3.

    It contains upstream's package flash_attn and the library that 'flashdepot get' would take or build.
    Prints the wheel's path. For several targets, as in --target linux-x86_64,windows-x86_64, it makes a wheel each, whose
    device code is compiled once.
    """
    started = time.monotonic()
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json)
    named = parse_names(names)
    opened = open_depot(depot)
    requests = [o.with_project(one) for one in o.each_target(words)]
    if dry_run:
        then = f"Then a wheel of it is written into {out.absolute()}."
        plans = [plan_library(r, host=host, depot=opened, limits=limits, events=events) for r in requests]
        if as_json:
            _print([plan_document(plan) for plan in plans])
            return
        for plan in plans:
            tell_plan(plan, as_json=False, then=then)
        return
    documents, beside = [], list[Wheel]()
    for request in requests:
        done = api.wheel(request, out=out, host=host, depot=opened, limits=limits, events=events)
        made, library = done.wheel, done.library
        seconds, started = time.monotonic() - started, time.monotonic()
        documents.append({**_document(made, library), "seconds": round(seconds, 3)})
        if not as_json:
            if not quiet:
                contents = library.manifest.selection
                say(f"flash-attn {made.version}: {contents}; {size(made.size)}, in {duration(seconds)}")
            answer(str(made.path))
        if jax:
            beside.append(build_jax_wheel(library.manifest, library.path, out))
    for made in (*beside, *build_names(named, out.absolute())):
        documents.append(msgspec.to_builtins(made, enc_hook=str))
        if not as_json:
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
