"""``flashdepot depot push|pull|sync|audit``: what the depot gives to remotes, takes from them, and thinks of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flashdepot.api import sharing
from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli import options as o
from flashdepot.cli.common import (
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
    warn,
)
from flashdepot.cli.depot_commands import by_prefix
from flashdepot.cli.library_commands import show_plan as tell_plan
from flashdepot.cli.library_commands import tell
from flashdepot.cli.options import machine_options
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits, size
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import spell


@click.command(
    epilog=examples(
        "flashdepot depot push", "flashdepot depot push 3fa9 --to team", "flashdepot depot push --to disk --json"
    )
)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--to", metavar="REMOTE", help="Only this remote.  [default: all that were added with --push]")
@click.option("--verify", is_flag=True, help="Read all blobs that are there, and write wrong ones again.")
@options(depot_option, json_option, quiet_option, verbose_option)
def push(
    keys: tuple[str, ...],
    to: str | None,
    depot: Path | None,
    *,
    verify: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Put libraries, and the units that they were made of, into a remote, signed with your key.

    Without a KEY all that the depot has. What is there already is not sent again, but gets your signature.
    """
    opened = open_depot(depot)
    manifests = [by_prefix(opened, key).manifest for key in keys] or list(opened.artifacts.manifests())
    if not manifests:
        raise UsageError(
            f"The depot {opened.root} has no library to push.", hint="Build one: flashdepot build --profile quick"
        )
    events = Terminal(quiet=quiet, verbose=verbose)
    done = sharing.push(manifests, to=to, verify=verify, remotes=configured_remotes(), depot=opened, events=events)
    if as_json:
        print_json(
            {
                "pushed": {
                    name: {
                        "libraries": pushed.libraries,
                        "units": pushed.units,
                        "blobs_sent": pushed.blobs,
                        "bytes_sent": pushed.bytes,
                        "blobs_repaired": pushed.repaired,
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
@options(o.selection_options, machine_options, depot_option, json_option, quiet_option, verbose_option)
def pull(
    host: HostRecord | None, depot: Path | None, *, as_json: bool, quiet: bool, verbose: bool, **words: str | None
) -> None:
    """Fetch the library that 'flashdepot get' would take from a remote, and never build it. Exit code 4: no remote has it."""
    found = sharing.pull(
        o.with_project(words),
        host=host,
        depot=open_depot(depot),
        events=Terminal(quiet=quiet, verbose=verbose),
    )
    tell(found, as_json=as_json, quiet=quiet)


@click.command(
    epilog=examples("flashdepot depot sync", "flashdepot depot sync team --dry-run", "flashdepot depot sync --json")
)
@click.argument("names", metavar="[REMOTE]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Say what would be fetched and pushed; do neither.")
@options(depot_option, json_option, quiet_option, verbose_option)
def sync(
    names: tuple[str, ...], depot: Path | None, *, dry_run: bool, as_json: bool, quiet: bool, verbose: bool
) -> None:
    """Fetch the libraries that remotes have and this depot lacks, and push the reverse, signed with your key.

    Without a REMOTE all that are set. Pushed is to those that were added with --push, and what this depot had before. What a remote has is found out by one request for each known version and target. When a remote fails the others are
    synchronized all the same, and the exit code is that of the failure.
    """
    found = sharing.sync(
        names,
        dry_run=dry_run,
        remotes=configured_remotes(),
        depot=open_depot(depot),
        events=Terminal(quiet=quiet, verbose=verbose),
    )
    if as_json:
        print_json({"status": "planned" if dry_run else "synced", "remotes": [_sync_row(one) for one in found]})
    for one in found:
        if not as_json:
            for line in _sync_lines(one):
                say(line)
        if one.problem is not None:
            warn(f"{one.remote}: {one.problem.message} {one.problem.hint}".rstrip())
    failed = [one.problem.exit_code for one in found if one.problem is not None]
    refused = any(one.done is not None and one.done.refused for one in found)
    if failed or refused:
        click.get_current_context().exit(failed[0] if failed else IntegrityError.exit_code)


def _sync_row(one: sharing.RemoteSync) -> dict[str, Any]:
    """What ``--json`` says of one remote: what was fetched and pushed, in a dry run what would be."""
    plan, done = one.plan, one.done
    fetched = done.fetched if done else [statement.summary for statement in plan.fetched] if plan else []
    pushed = plan.pushed if plan and (done or one.problem is None) else ()
    return {
        "name": one.remote,
        "url": one.url,
        "fetched": [_library_row(manifest) for manifest in fetched],
        "refused": list(done.refused) if done else [],
        "pushed": [_library_row(manifest) for manifest in pushed],
        "bytes_sent": done.pushed.bytes if done and done.pushed else 0,
        "differing": list(plan.differing) if plan else [],
        "problem": one.problem.message if one.problem else "",
    }


def _library_row(manifest: Manifest) -> dict[str, Any]:
    return {
        "recipe_key": manifest.recipe_key,
        "upstream": str(manifest.upstream),
        "platform": str(manifest.platform),
        "gpus": spell(manifest.sass),
        "size": manifest.size,
    }


def _sync_lines(one: sharing.RemoteSync) -> Sequence[str]:
    plan, done = one.plan, one.done
    if plan is None:
        return []
    fetched = done.fetched if done else [statement.summary for statement in plan.fetched]
    will = "" if done else "would be "
    lines = [f"{one.remote}: fetched  {_library_line(manifest)}" for manifest in fetched if done]
    lines += [f"{one.remote}: to fetch {_library_line(manifest)}" for manifest in fetched if not done]
    lines += [
        f"{one.remote}: {'pushed ' if done else 'to push'}  {_library_line(manifest)}" for manifest in plan.pushed
    ]
    lines += [
        f"{one.remote}: {key[:12]} differs: somebody got other bytes from the same recipe. Find out who: flashdepot depot audit"
        for key in plan.differing
    ]
    total = sum(manifest.size for manifest in fetched)
    lines.append(
        f"{one.remote}: {len(fetched)} {will}fetched ({size(total)}), {len(plan.pushed)} {will}pushed"
        + (f" ({size(done.pushed.bytes)} sent)" if done and done.pushed else "")
    )
    return lines


def _library_line(manifest: Manifest) -> str:
    return f"{manifest.recipe_key[:12]}  {manifest.upstream}  {manifest.platform}  {spell(manifest.sass)}  {size(manifest.size)}"


@click.command(epilog=examples("flashdepot depot audit --profile inference --sample 3", "flashdepot depot audit --all"))
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=2,
    metavar="N",
    help="How many units, chosen at random.  [default: 2]",
)
@click.option("--all", "everything", is_flag=True, help="Compile all units again.")
@click.option(
    "--sign", is_flag=True, help="If all are the same, add your signature to the builder's, in remotes with --push."
)
@options(
    o.selection_options,
    o.build_options,
    o.dry_run_option,
    machine_options,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def audit(
    sample: int,
    limits: Limits,
    host: HostRecord | None,
    depot: Path | None,
    *,
    everything: bool,
    sign: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Compile units again, and compare their bytes with those in the depot and with what remotes claim.

    The units are those that 'flashdepot build' would compile with the same options. Exit code 6: somebody has other bytes.
    """
    request, opened = o.with_project(words), open_depot(depot)
    events, count = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json), None if everything else sample
    if dry_run:
        forecast = sharing.plan_audit(request, sample=count, host=host, depot=opened, limits=limits)
        tell_plan(LibraryPlan(forecast=forecast), as_json=as_json)
        return
    report = sharing.audit(
        request,
        sample=count,
        sign=sign,
        remotes=configured_remotes(),
        host=host,
        depot=opened,
        limits=limits,
        events=events,
    )
    wrong = [f"{m.name}: {m.place} has {m.claimed[:12]}, compiled was {m.compiled[:12]}" for m in report.mismatches]
    if as_json and not wrong:
        print_json(
            {
                "status": "same",
                "compiled": list(report.compiled),
                "compared": report.compared,
                "unclaimed": list(report.unclaimed),
                "signed": dict(report.signed),
            }
        )
    elif not quiet:
        say(
            f"{len(report.compiled)} compiled again, {report.compared} objects compared with them: "
            f"{len(wrong) or 'none'} with other bytes."
        )
        if report.unclaimed:
            say(f"Of {len(report.unclaimed)} there is nothing to compare with: build or pull them first.")
        for name, count in report.signed.items():
            say(f"{count} records of {name} have got your signature.")
    if wrong:
        raise IntegrityError(
            f"Not what the compilers make: {'; '.join(wrong)}.",
            hint="Somebody replaced it, or compiled with tools that call themselves the same. Do not use what came from there, "
            "and revoke the key that signed it: flashdepot keys revoke NAME",
        )
