"""``flashdepot depot push|pull|audit``: push, pull and audit."""

from __future__ import annotations

import click

from flashdepot import api
from flashdepot.api import sharing
from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli.common import Number, command, configured_remotes, depot_option, flag, option, options
from flashdepot.cli.library_commands import library_view, plan_view
from flashdepot.cli.options import Asked, Wanted, library_options, machine_options, selection_options
from flashdepot.cli.output import View, fields
from flashdepot.cli.terminal import terminal
from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.host import HostRecord


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
