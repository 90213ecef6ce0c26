"""``flashdepot depot push|pull|audit``: what the depot gives to remotes, takes from them, and thinks of them."""

from __future__ import annotations

from pathlib import Path

import click

from flashdepot.api import sharing
from flashdepot.cli import options as o
from flashdepot.cli.common import (
    configured_remotes,
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
from flashdepot.cli.depot_commands import by_prefix
from flashdepot.cli.library_commands import tell
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IntegrityError, UsageError


@click.command(
    epilog=examples(
        "flashdepot depot push", "flashdepot depot push 3fa9 --to team", "flashdepot depot push --to disk --json"
    )
)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--to", metavar="REMOTE", help="Only this remote.  [default: all that were added with --push]")
@options(depot_option, json_option, quiet_option, verbose_option)
def push(
    keys: tuple[str, ...], to: str | None, depot: Path | None, *, as_json: bool, quiet: bool, verbose: bool
) -> None:
    """Put libraries, and the units that they were made of, into a remote, signed with your key.

    Without a KEY all that the depot has. What is there already is not sent again, but gets your signature.
    """
    opened = open_depot(depot)
    manifests = [by_prefix(opened, key).manifest for key in keys] or list(opened.manifests())
    if not manifests:
        raise UsageError(
            f"The depot {opened.root} has no library to push.", hint="Build one: flashdepot build --profile quick"
        )
    events = Terminal(quiet=quiet, verbose=verbose)
    done = sharing.push(manifests, to=to, remotes=configured_remotes(), depot=opened, events=events)
    if as_json:
        print_json(
            {
                "pushed": {
                    name: {
                        "libraries": pushed.libraries,
                        "units": pushed.units,
                        "blobs_sent": pushed.blobs,
                        "bytes_sent": pushed.bytes,
                        "records_sent": pushed.records,
                    }
                    for name, pushed in done.items()
                }
            }
        )
        return
    for name, pushed in done.items():
        say(f"{name}: {pushed}.")


@click.command(epilog=examples("flashdepot depot pull --profile inference --arch 90", "flashdepot depot pull"))
@options(o.selection_options, host_option, depot_option, json_option, quiet_option, verbose_option)
def pull(
    host_file: Path | None, depot: Path | None, *, as_json: bool, quiet: bool, verbose: bool, **words: str | None
) -> None:
    """Fetch the library that 'flashdepot get' would take from a remote, and never build it. Exit code 4: no remote has it."""
    found = sharing.pull(
        o.with_project(words),
        host=load_host(host_file),
        depot=open_depot(depot),
        events=Terminal(quiet=quiet, verbose=verbose),
    )
    tell(found, as_json=as_json, quiet=quiet)


@click.command(epilog=examples("flashdepot depot audit --profile inference --sample 3", "flashdepot depot audit --all"))
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=2,
    metavar="N",
    help="How many units, drawn at random.  [default: 2]",
)
@click.option("--all", "everything", is_flag=True, help="Compile all units again.")
@options(
    o.selection_options,
    o.jobs_option,
    o.memory_option,
    host_option,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def audit(
    sample: int,
    jobs: int | None,
    memory: str | None,
    host_file: Path | None,
    depot: Path | None,
    *,
    everything: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Compile units again, and compare their bytes with those in the depot and with what remotes claim.

    The units are those that 'flashdepot build' would compile with the same options. Exit code 6: somebody has other bytes.
    """
    report = sharing.audit(
        o.with_project(words),
        sample=None if everything else sample,
        remotes=configured_remotes(),
        host=load_host(host_file),
        depot=open_depot(depot),
        limits=o.limits(jobs, memory),
        events=Terminal(quiet=quiet, verbose=verbose),
    )
    wrong = [f"{m.name}: {m.place} has {m.claimed[:12]}, compiled was {m.compiled[:12]}" for m in report.mismatches]
    if as_json and not wrong:
        print_json(
            {
                "status": "same",
                "compiled": list(report.compiled),
                "compared": report.compared,
                "unclaimed": list(report.unclaimed),
            }
        )
    elif not quiet:
        say(
            f"{len(report.compiled)} compiled again, {report.compared} objects compared with them: "
            f"{len(wrong) or 'none'} with other bytes."
        )
        if report.unclaimed:
            say(f"Of {len(report.unclaimed)} there is nothing to compare with: build or pull them first.")
    if wrong:
        raise IntegrityError(
            f"Not what the compilers make: {'; '.join(wrong)}.",
            hint="Somebody replaced it, or compiled with tools that call themselves the same. Do not use what came from there, "
            "and revoke the key that signed it: flashdepot keys revoke NAME",
        )
