"""``flashdepot depot path|init|ls|usage|show|verify|gc|clean``.

What speaks with remotes is in :mod:`flashdepot.cli.sharing_commands`.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import click

from flashdepot.cli.app import Commands, table_of
from flashdepot.cli.common import Number, command, depot_option, flag, option, options, path_option
from flashdepot.cli.output import Table, View, ask, fields, say, wants_json
from flashdepot.depot import Depot, StoredArtifact
from flashdepot.depot.gc import Removal, plan, run
from flashdepot.depot.gc import usage as usage_of
from flashdepot.errors import IntegrityError
from flashdepot.host.probe import this_platform
from flashdepot.model.codec import digest_of
from flashdepot.model.limits import counted, size
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import spell

COMMANDS = table_of(depot_commands="path init ls usage show verify gc clean", sharing_commands="push pull audit")


@click.group(cls=Commands, sections={"Commands": COMMANDS})
def depot() -> None:
    """Inspect, check and clean the store of compiled units and libraries."""


@command()
@depot_option
def path(depot: Depot) -> View:
    """Print the depot's folder."""
    return View({"path": str(depot.root)}, [str(depot.root)])


@command()
@path_option(
    "--depot DIR  Folder of the depot.  [default: the user's cache folder]",
    to="folder",
    envvar="FLASHDEPOT_HOME",
    show_envvar=True,
)
def init(folder: Path | None) -> View:
    """Make a depot, or fix the permissions of one, so that only you may write into it."""
    from flashdepot.depot.layout import DepotLayout  # noqa: PLC0415
    from flashdepot.depot.layout import init as init_depot  # noqa: PLC0415
    from flashdepot.depot.store import depot_folder  # noqa: PLC0415

    root = depot_folder(folder)  # one that may not be opened as it is
    init_depot(DepotLayout(root))
    return View({"path": str(root)}, [str(root)])


@command()
@depot_option
def ls(depot: Depot) -> View:
    """List the stored libraries, most recently used first."""
    stored = depot.artifacts.by_last_use()
    document = [
        {
            **a.manifest.to_json(),
            "size": a.manifest.size,
            "created": a.created.isoformat(timespec="seconds"),
            "last_used": a.last_used.isoformat(),
        }
        for a in stored
    ]
    if not stored:
        return View(
            document, said=["The depot has no library yet. 'flashdepot get --profile quick' makes a small one."]
        )
    rows = [
        (
            a.manifest.recipe_key[:12],
            str(a.manifest.upstream),
            spell(a.manifest.sass),
            str(a.manifest.toolchain.cuda),
            size(a.manifest.size),
            _age(a.last_used),
            "; ".join(filter(None, (_kernels(a.manifest), *_differences(a.manifest, stored)))),
        )
        for a in stored
    ]
    total = size(sum(a.manifest.size for a in stored))
    return View(
        document,
        [Table(("library", "flash-attn", "GPUs", "CUDA", "size", "last used", "kernels"), rows)],
        then=[f"{counted(len(stored), 'library')}, {total}. All that is on disk: flashdepot depot usage"],
    )


def _kernels(manifest: Manifest) -> str:
    there = "" if manifest.platform == this_platform() else f"; for {manifest.platform}"
    return f"{manifest.selection}{f' (untested: {manifest.untested})' if manifest.untested else ''}{there}"


def _differences(manifest: Manifest, stored: Sequence[StoredArtifact]) -> list[str]:
    """What made a library, as far as it differs from the others that can do the same."""

    def makers(one: Manifest) -> set[str]:
        tools = {f"{tool.name} {tool.version} ({tool.digest[:8]})" for tool in one.toolchain.tools}
        source, flags = one.upstream.digest[:8], digest_of(one.flags)[:8]
        c_layer = f"C layer of flashdepot {one.flashdepot} ({one.c_layer[:8]})"
        return {*tools, c_layer, f"source {source}", f"flags {flags}", f"driver {one.driver_floor} or newer"}

    looks = (_kernels(manifest), str(manifest.upstream), manifest.sass, manifest.toolchain.cuda)
    others = (a.manifest for a in stored)
    alike = [o for o in others if (_kernels(o), str(o.upstream), o.sass, o.toolchain.cuda) == looks]
    return sorted(makers(manifest) - makers(manifest).intersection(*map(makers, alike)))


@command("flashdepot depot usage", "flashdepot depot usage --json")
@depot_option
def usage(depot: Depot) -> View:
    """Show what the depot keeps on disk, how much of it, and when it was last used."""
    kinds = [kind for kind in usage_of(depot) if kind.bytes or kind.count]
    total = sum(kind.bytes for kind in kinds)
    document = [
        fields(kind, "kind", "count", "bytes")
        | {"last_used": kind.last_used.isoformat(timespec="seconds") if kind.last_used else None}
        for kind in kinds
    ]
    rows = [
        (kind.kind, str(kind.count or ""), size(kind.bytes), _age(kind.last_used) if kind.last_used else "")
        for kind in kinds
    ]
    return View(
        {"path": str(depot.root), "bytes": total, "kinds": document},
        [Table(("what", "number", "on disk", "last used"), rows)] if rows else [],
        then=[f"{size(total)} in {depot.root}. Free all but the libraries: flashdepot depot clean"],
    )


def _age(used: datetime.datetime) -> str:
    days = (datetime.datetime.now(datetime.timezone.utc) - used).days
    return "today" if days < 1 else "yesterday" if days == 1 else f"{days} days ago"


@command("flashdepot depot show 3fa9", "flashdepot depot show 3fa9 --json")
@click.argument("key")
@depot_option
def show(key: str, depot: Depot) -> View:
    """Show the manifest of a stored library: what it can do, what it needs, what made it."""
    stored = depot.artifacts.named(key)
    manifest = stored.manifest
    rows = [
        ("recipe key", manifest.recipe_key),
        ("flash-attn", str(manifest.upstream)),
        *((f"commit {place}", commit) for place, commit in manifest.upstream.commits.items()),
        ("selection", str(manifest.selection)),
        ("units", str(len(manifest.selection.units))),
        ("for", str(manifest.platform)),
        ("machine code", spell(manifest.sass)),
        *([("untested", manifest.untested)] if manifest.untested else []),
        ("needs", f"driver {manifest.driver_floor}, GNU libc {manifest.libc_floor or '(none)'}"),
        ("made by", ", ".join(f"{t.name} {t.version}" for t in manifest.toolchain.tools)),
        ("created", f"{stored.created.isoformat(timespec='seconds')} by flashdepot {manifest.flashdepot}"),
        *((size(f.size), f.path) if not f.link else ("link", f"{f.path} -> {f.link}") for f in manifest.files),
    ]
    return View(manifest.to_json(), [f"{name:<14} {value}" for name, value in rows])


@command()
@depot_option
def verify(depot: Depot) -> View:
    """Read every stored byte again and compare it with its digest; set aside what is damaged.

    The next command that needs what was set aside makes it again. Exit code 6: something was damaged.
    """
    from flashdepot.depot.verify import verify as verify_depot  # noqa: PLC0415

    report = verify_depot(depot)
    document = fields(report, "checked", "bytes", "folders", "folder_bytes", "problems")
    said = (
        f"{report.checked - report.folders} stored files and records ({size(report.bytes)}), "
        f"{counted(report.folders, 'folder')} of compilers and sources ({size(report.folder_bytes)}), every byte read: "
        f"{counted(len(report.problems), 'problem') if report.problems else 'no problems'}."
    )
    error = IntegrityError(
        "\n  ".join((f"{depot.root}:", *report.problems)),
        hint="You need to do nothing: what was damaged is made again when it is needed.",
    )
    return View(document, said=[said], error=error if report.problems else None)


_KINDS = {"blob": "object", "toolchain": "compiler", "upstream": "source"}
"""What ``usage`` calls them."""

_free_options = options(
    flag("-y --yes  Do not ask."), flag("--dry-run  Show what would be freed without freeing it."), depot_option
)


@command("flashdepot depot gc --dry-run", "flashdepot depot gc --older-than 7 --yes")
@option("--older-than DAYS  Free what has not been used for this long.  [default: 30]", type=Number(0), default=30)
@option("--remove KEY  Forget this library first (repeatable).", multiple=True)
@_free_options
def gc(older_than: int, remove: tuple[str, ...], depot: Depot, *, yes: bool, dry_run: bool) -> View:
    """Free what no library and no recently used unit needs. Safe during a build."""
    forget = frozenset(depot.artifacts.named(key).manifest.recipe_key for key in remove)
    planned = plan(depot, datetime.timedelta(days=older_than), forget=forget)
    kept = (
        f"Libraries and what they are made of stay, and what was used in the last {f'{older_than} days' if older_than else 'hour'}. "
        "To free more: --remove KEY, or 'flashdepot depot clean --all'."
    )
    return _freed(depot, planned, [] if planned else [kept], yes=yes, dry_run=dry_run)


@command("flashdepot depot clean --dry-run", "flashdepot depot clean --all --yes")
@flag("--all  Free the libraries as well.", to="libraries")
@_free_options
def clean(depot: Depot, *, libraries: bool, yes: bool, dry_run: bool) -> View:
    """Free everything but the libraries: compilers, sources, objects, downloads, logs.

    What is freed is fetched or compiled again when it is needed. What a running command uses stays.
    """
    forget = frozenset(manifest.recipe_key for manifest in depot.artifacts.manifests()) if libraries else frozenset()
    planned = plan(depot, datetime.timedelta(0), grace=0, forget=forget)
    return _freed(depot, planned, [], yes=yes, dry_run=dry_run)


def _freed(depot: Depot, planned: tuple[Removal, ...], said: list[str], *, yes: bool, dry_run: bool) -> View:
    if not wants_json():
        kinds: dict[tuple[str, str], list[int]] = {}
        for removal in planned:
            kinds.setdefault((removal.kind, removal.reason), []).append(removal.bytes)
        for (kind, reason), sizes in kinds.items():
            say(f"{size(sum(sizes)):>10}  {counted(len(sizes), _KINDS.get(kind, kind))}: {reason}")
        found = f"{size(sum(removal.bytes for removal in planned))} in {counted(len(planned), 'place')}."
        say(found if planned else "There is nothing to free.")
    confirmed = not dry_run and bool(planned) and (yes or wants_json() or ask("Free it?"))
    done = run(depot, planned) if confirmed else None
    shown = planned if done is None else done
    freed = sum(removal.bytes for removal in shown)
    listed = [fields(removal, "path", "kind", "reason", "bytes") for removal in shown]
    document = {"done": done is not None, "bytes": freed, "removals": listed}
    return View(document, then=said if done is None else [f"Freed {size(freed)}."])
