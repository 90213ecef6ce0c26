"""``flashdepot depot path|init|ls|usage|show|verify|gc|clean``.

What speaks with remotes is in :mod:`flashdepot.cli.sharing_commands`.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashdepot.cli.app import LazyCommands, Table
from flashdepot.cli.common import (
    answer,
    ask,
    depot_option,
    examples,
    json_option,
    open_depot,
    print_json,
    print_table,
    quiet_option,
    say,
)
from flashdepot.depot import Depot, StoredArtifact
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.limits import size
from flashdepot.model.target import spell

if TYPE_CHECKING:
    from flashdepot.depot.gc import GcPlan, Removal

COMMANDS: Table = {
    "path": ("depot_commands", "Print the depot's folder."),
    "init": ("depot_commands", "Make a depot, or fix its permissions: for this user, or to share with a group."),
    "ls": ("depot_commands", "List the stored libraries, most recently used first."),
    "usage": ("depot_commands", "Show what the depot keeps on disk, how much of it, and when it was last used."),
    "show": ("depot_commands", "Show the manifest of a stored library."),
    "verify": ("depot_commands", "Compare every stored byte with its digest."),
    "gc": ("depot_commands", "Free what no library and no recently used unit needs."),
    "clean": ("depot_commands", "Free everything but the libraries."),
    "push": ("sharing_commands", "Put libraries and their units into a remote, signed."),
    "pull": ("sharing_commands", "Fetch a library from a remote, and never build it."),
    "sync": ("sharing_commands", "Fetch what remotes have and this depot lacks, and push the reverse."),
    "audit": ("sharing_commands", "Compile units again, and compare their bytes with what is stored or claimed."),
}


@click.group(cls=LazyCommands, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def depot() -> None:
    """Inspect, check and clean the store of compiled units and libraries."""


@click.command()
@depot_option
@json_option
def path(depot: Path | None, *, as_json: bool) -> None:
    """Print the depot's folder."""
    _tell_folder(open_depot(depot).root, as_json=as_json)


@click.command(
    epilog=examples("flashdepot depot init", "sudo flashdepot depot init --shared gpu --depot /opt/flashdepot")
)
@click.option("--shared", "group", metavar="GROUP", help="Let the members of this group add to it.")
@depot_option
@json_option
def init(group: str | None, depot: Path | None, *, as_json: bool) -> None:
    """Make a depot, or fix the permissions of one: for this user, or to share with a group.

    In a shared depot, members add libraries that all of them use, and can remove only their own. Everybody else can at
    most read it.
    """
    from flashdepot.depot.access import init as init_depot  # noqa: PLC0415
    from flashdepot.depot.layout import DepotLayout  # noqa: PLC0415
    from flashdepot.depot.store import depot_folder  # noqa: PLC0415

    root = depot_folder(depot)
    init_depot(DepotLayout(root), group)
    _tell_folder(root, as_json=as_json)


def _tell_folder(root: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(root)})
    else:
        answer(str(root))


@click.command()
@depot_option
@json_option
def ls(depot: Path | None, *, as_json: bool) -> None:
    """List the stored libraries, most recently used first."""
    stored = open_depot(depot).artifacts.by_last_use()
    if as_json:
        print_json(
            [
                {
                    **a.manifest.to_json(),
                    "size": a.manifest.size,
                    "created": a.created.isoformat(timespec="seconds"),
                    "last_used": a.last_used.isoformat(),
                }
                for a in stored
            ]
        )
        return
    if not stored:
        say("The depot has no library yet. 'flashdepot get --profile quick' makes a small one.")
        return
    print_table(
        ("library", "flash-attn", "GPUs", "CUDA", "size", "last used", "kernels"),
        [
            (
                a.manifest.recipe_key[:12],
                str(a.manifest.upstream),
                spell(a.manifest.sass),
                str(a.manifest.toolchain.cuda),
                size(a.manifest.size),
                _age(a.last_used),
                f"{a.manifest.selection}{f' (unproven: {a.manifest.doubts})' if a.manifest.doubts else ''}",
            )
            for a in stored
        ],
    )
    total = size(sum(a.manifest.size for a in stored))
    say(f"{len(stored)} libraries, {total}. All that is on disk: flashdepot depot usage")


@click.command(epilog=examples("flashdepot depot usage", "flashdepot depot usage --json"))
@depot_option
@json_option
def usage(depot: Path | None, *, as_json: bool) -> None:
    """Show what the depot keeps on disk, how much of it, and when it was last used."""
    from flashdepot.depot.gc import usage as usage_of  # noqa: PLC0415

    opened = open_depot(depot)
    kinds = [kind for kind in usage_of(opened) if kind.bytes or kind.count]
    total = sum(kind.bytes for kind in kinds)
    if as_json:
        rows = [
            {
                "kind": kind.kind,
                "count": kind.count,
                "bytes": kind.bytes,
                "last_used": kind.last_used.isoformat(timespec="seconds") if kind.last_used else None,
            }
            for kind in kinds
        ]
        print_json({"path": str(opened.root), "bytes": total, "kinds": rows})
        return
    if kinds:
        print_table(
            ("what", "number", "on disk", "last used"),
            [
                (kind.kind, str(kind.count or ""), size(kind.bytes), _age(kind.last_used) if kind.last_used else "")
                for kind in kinds
            ],
        )
    say(f"{size(total)} in {opened.root}. Free all but the libraries: flashdepot depot clean")


def _age(used: datetime.datetime) -> str:
    days = (datetime.datetime.now(datetime.timezone.utc) - used).days
    return "today" if days < 1 else "yesterday" if days == 1 else f"{days} days ago"


@click.command(epilog=examples("flashdepot depot show 3fa9", "flashdepot depot show 3fa9 --json"))
@click.argument("key")
@depot_option
@json_option
def show(key: str, depot: Path | None, *, as_json: bool) -> None:
    """Show the manifest of a stored library: what it can do, what it needs, what made it."""
    stored = by_prefix(open_depot(depot), key)
    manifest = stored.manifest
    if as_json:
        print_json(manifest.to_json())
        return
    rows = [
        ("recipe key", manifest.recipe_key),
        ("flash-attn", str(manifest.upstream)),
        *((f"commit {place}", commit) for place, commit in manifest.upstream.commits.items()),
        ("selection", str(manifest.selection)),
        ("units", str(len(manifest.selection.units))),
        ("machine code", spell(manifest.sass)),
        *([("unproven", manifest.doubts)] if manifest.doubts else []),
        ("needs", f"driver {manifest.driver_floor}, GNU libc {manifest.libc_floor or '(none)'}"),
        ("made by", ", ".join(f"{t.name} {t.version}" for t in manifest.toolchain.tools)),
        ("front end", manifest.front_end),
        ("created", f"{stored.created.isoformat(timespec='seconds')} by flashdepot {manifest.flashdepot}"),
        *((size(f.size), f.path) if not f.link else ("link", f"{f.path} -> {f.link}") for f in manifest.files),
    ]
    answer("\n".join(f"{name:<14} {value}" for name, value in rows))


@click.command()
@depot_option
@json_option
@quiet_option
def verify(depot: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Read every stored byte again and compare it with its digest; set aside what is damaged.

    The next command that needs what was set aside makes it again. Exit code 6: something was damaged.
    """
    from flashdepot.depot.verify import verify as verify_depot  # noqa: PLC0415

    opened = open_depot(depot)
    report = verify_depot(opened)
    if as_json:
        print_json(
            {
                "checked": report.checked,
                "bytes": report.bytes,
                "folders": report.folders,
                "folder_bytes": report.folder_bytes,
                "problems": list(report.problems),
            }
        )
    elif not quiet:
        say(
            f"{report.checked - report.folders} stored files and records ({size(report.bytes)}), "
            f"{report.folders} folders of compilers and sources ({size(report.folder_bytes)}), every byte read: "
            f"{len(report.problems) or 'no'} problems."
        )
    if report.problems:
        raise IntegrityError(
            "\n  ".join((f"{opened.root}:", *report.problems)),
            hint="You need to do nothing: what was damaged is made again when it is needed.",
        )


@click.command(epilog=examples("flashdepot depot gc --dry-run", "flashdepot depot gc --older-than 7 --yes"))
@click.option(
    "--older-than",
    type=click.IntRange(min=0),
    default=30,
    metavar="DAYS",
    help="Free what has not been used for this long.  [default: 30]",
)
@click.option("--remove", metavar="KEY", multiple=True, help="Forget this library first (repeatable).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be freed without freeing it.")
@depot_option
@json_option
def gc(
    older_than: int, remove: tuple[str, ...], depot: Path | None, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Free what no library and no recently used unit needs. Safe during a build."""
    from flashdepot.depot.gc import plan  # noqa: PLC0415

    opened = open_depot(depot)
    forget = frozenset(by_prefix(opened, key).manifest.recipe_key for key in remove)
    planned = plan(opened, datetime.timedelta(days=older_than), forget=forget)
    _free(opened, planned, yes=yes, dry_run=dry_run, as_json=as_json)
    if not planned.removals and not as_json:
        say(
            f"Libraries and what they are made of stay, and so does what was used in the last {older_than} days or the last "
            "hour. To free more: --remove KEY, or 'flashdepot depot clean --all'."
        )


@click.command(epilog=examples("flashdepot depot clean --dry-run", "flashdepot depot clean --all --yes"))
@click.option("--all", "libraries", is_flag=True, help="Free the libraries as well.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be freed without freeing it.")
@depot_option
@json_option
def clean(depot: Path | None, *, libraries: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Free everything but the libraries: compilers, sources, objects, downloads, logs.

    What is freed is fetched or compiled again when it is needed. What a running command uses stays.
    """
    from flashdepot.depot.gc import plan  # noqa: PLC0415

    opened = open_depot(depot)
    forget = frozenset(manifest.recipe_key for manifest in opened.artifacts.manifests()) if libraries else frozenset()
    planned = plan(opened, datetime.timedelta(0), grace=0, forget=forget)
    _free(opened, planned, yes=yes, dry_run=dry_run, as_json=as_json)


def _free(opened: Depot, planned: GcPlan, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Show a plan, and carry it out when it is agreed to."""
    from flashdepot.depot.gc import run  # noqa: PLC0415

    if not as_json:
        for (kind, reason), removals in _grouped(planned).items():
            freed = size(sum(removal.bytes for removal in removals))
            say(f"{freed:>10}  {len(removals)} of kind {kind}: {reason}")
        say(f"{size(planned.bytes)} in {len(planned.removals)} places.")
    confirmed = not dry_run and bool(planned.removals) and (yes or as_json or ask("Free it?"))
    done = run(opened, planned) if confirmed else None
    if as_json:
        shown = done or planned
        listed = [{"path": str(r.path), "kind": r.kind, "reason": r.reason, "bytes": r.bytes} for r in shown.removals]
        print_json({"done": done is not None, "bytes": shown.bytes, "removals": listed})
    elif done is not None:
        say(f"Freed {size(done.bytes)}.")


def _grouped(planned: GcPlan) -> dict[tuple[str, str], list[Removal]]:
    groups: dict[tuple[str, str], list[Removal]] = {}
    for removal in planned.removals:
        groups.setdefault((removal.kind, removal.reason), []).append(removal)
    return groups


def by_prefix(depot: Depot, key: str) -> StoredArtifact:
    """The stored library whose key begins so; :raises UsageError: when there is none, or several."""
    found = [a for a in depot.artifacts.by_last_use() if a.manifest.recipe_key.startswith(key)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} stored libraries have keys that begin with" if found else "no stored library has the key"
    raise UsageError(f"'{key}': {problem} {key}.", hint="'flashdepot depot ls' lists them.")
