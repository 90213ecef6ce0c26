"""``flashdepot depot push|pull|sync|audit``: push, pull, sync and audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from flashdepot import api
from flashdepot.api import sharing
from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli.common import Number, command, configured_remotes, depot_option, flag, option, options
from flashdepot.cli.library_commands import library_view, plan_view
from flashdepot.cli.options import Asked, Wanted, library_options, machine_options, selection_options
from flashdepot.cli.output import View, fields, warn
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import size
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import spell


@command("flashdepot depot push", "flashdepot depot push 3fa9 --to team", "flashdepot depot push --to disk --json")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@option("--to REMOTE  Only this remote.  [default: all that were added with --push]")
@flag("--verify  Read all blobs that are there, and write wrong ones again.")
@flag("--dry-run  Say what would be sent; send nothing.")
@depot_option
def push(keys: tuple[str, ...], to: str | None, depot: Depot, *, verify: bool, dry_run: bool) -> View:
    """Put libraries, and the units that they were made of, into a remote, signed with your key.

    Without a KEY, everything in the depot is pushed. What the remote already has is not sent again, but gets your
    signature.
    """
    if named := [one.name for one in configured_remotes().all() if one.name in keys]:
        raise UsageError(
            f"'{named[0]}' is a remote, and what is pushed is a library.", hint=f"flashdepot depot push --to {named[0]}"
        )
    manifests = [depot.artifacts.named(key).manifest for key in keys] or list(depot.artifacts.manifests())
    if not manifests:
        raise UsageError(
            f"The depot {depot.root} has no library to push.", hint="Build one: flashdepot build --profile quick"
        )
    done = sharing.push(manifests, to=to, verify=verify, dry_run=dry_run, depot=depot, events=terminal())
    document = {
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
    status = "planned" if dry_run else "pushed"
    return View({"status": status, "pushed": document}, said=[f"{name}: {pushed}." for name, pushed in done.items()])


@command("flashdepot depot pull --profile inference --arch 90", "flashdepot depot pull")
@options(selection_options, machine_options, depot_option)
def pull(wanted: Wanted, host: HostRecord | None, depot: Depot) -> View:
    """Fetch the library that 'flashdepot get' would take from a remote, but never build. Exit code 4: no remote has it."""
    return library_view(api.pull(wanted.request, host=host, depot=depot, events=terminal()))


@command("flashdepot depot sync", "flashdepot depot sync team --dry-run", "flashdepot depot sync --json")
@click.argument("names", metavar="[REMOTE]...", nargs=-1)
@flag("--dry-run  Say what would be fetched and pushed; do neither.")
@depot_option
def sync(names: tuple[str, ...], depot: Depot, *, dry_run: bool) -> View:
    """Fetch the libraries that remotes have and this depot lacks, and push the reverse, signed with your key.

    Without a REMOTE, all are synchronized. Only remotes that were added with --push are pushed to, and only with what
    this depot had before. Each remote gets one request for each known version and target. If a remote fails, the others
    are still synchronized, and the exit code is that of the failure.
    """
    found = sharing.sync(names, dry_run=dry_run, depot=depot, events=terminal())
    problems = [(one.remote, one.problem) for one in found if one.problem is not None]
    for remote, problem in problems:
        warn(f"{remote}: {problem.message.rstrip('.')}. {problem.hint}".rstrip())
    refused = any(one.refused for one in found)
    return View(
        {"status": "planned" if dry_run else "synced", "remotes": [_sync_row(one) for one in found]},
        said=[line for one in found for line in _sync_lines(one, dry_run=dry_run)],
        status=problems[0][1].exit_code if problems else IntegrityError.exit_code if refused else 0,
    )


def _sync_row(one: sharing.RemoteSync) -> dict[str, Any]:
    return {
        "name": one.remote,
        "url": one.url,
        "fetched": [*map(_library_row, one.fetched)],
        "refused": one.refused,
        "pushed": [*map(_library_row, one.pushed)],
        "bytes_sent": one.sent.bytes if one.sent else 0,
        "differing": one.differing,
        "problem": one.problem.message if one.problem else "",
    }


def _library_row(manifest: Manifest) -> dict[str, Any]:
    return fields(manifest, "recipe_key", "upstream", "platform", "size") | {"gpus": spell(manifest.sass)}


def _sync_lines(one: sharing.RemoteSync, *, dry_run: bool) -> Sequence[str]:
    if one.problem is not None and not one.fetched:
        return []
    will = "would be " if dry_run else ""
    get, put = ("to fetch", "to push ") if dry_run else ("fetched ", "pushed  ")
    lines = [f"{one.remote}: {get} {_library_line(manifest)}" for manifest in one.fetched]
    lines += [f"{one.remote}: {put} {_library_line(manifest)}" for manifest in one.pushed]
    lines += [
        f"{one.remote}: {key[:12]} differs: somebody got other bytes from the same recipe. Find out who: flashdepot depot audit"
        for key in one.differing
    ]
    total = sum(manifest.size for manifest in one.fetched)
    lines.append(
        f"{one.remote}: {len(one.fetched)} {will}fetched ({size(total)}), {len(one.pushed)} {will}pushed"
        + (f" ({size(one.sent.bytes)} sent)" if one.sent else "")
    )
    return lines


def _library_line(manifest: Manifest) -> str:
    return f"{manifest.recipe_key[:12]}  {manifest.upstream}  {manifest.platform}  {spell(manifest.sass)}  {size(manifest.size)}"


@command("flashdepot depot audit --profile inference --sample 3", "flashdepot depot audit --all")
@option("--sample N  How many units, chosen at random.  [default: 2]", type=Number(1), default=2)
@flag("--all  Compile all units again.", to="everything")
@flag("--sign  If all are the same, add your signature to the builder's, in remotes with --push.")
@library_options
def audit(sample: int, asked: Asked, *, everything: bool, sign: bool) -> View:
    """Compile units again, and compare their bytes with those in the depot and with what remotes claim.

    The units are those that 'flashdepot build' would compile with the same options. Exit code 6: some bytes differ.
    """
    request, how = asked.wanted.request, {**asked.how, "sample": None if everything else sample}
    if asked.dry_run:
        return plan_view(LibraryPlan(forecast=sharing.plan_audit(request, **how)))
    report = sharing.audit(request, sign=sign, **how)
    wrong = [f"{m.name}: {m.place} has {m.claimed[:12]}, compiled was {m.compiled[:12]}" for m in report.mismatches]
    if wrong:
        raise IntegrityError(
            f"These units differ from what the compilers make: {'; '.join(wrong)}.",
            hint="Somebody replaced them, or compiled with tools that only claim to be the same. Use nothing from there, and "
            "revoke the key that signed it: flashdepot keys revoke NAME",
        )
    document = {"status": "same", **fields(report, "compiled", "compared", "unclaimed", "signed")}
    said = [
        f"{len(report.compiled)} compiled again, {report.compared} objects compared with them: none with other bytes."
    ]
    if report.unclaimed:
        said.append(f"{len(report.unclaimed)} have nothing to compare with: build or pull them first.")
    said += [f"{count} records of {name} now have your signature." for name, count in report.signed.items()]
    return View(document, said=said)
