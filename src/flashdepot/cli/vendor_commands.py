"""``flashdepot vendor``."""

from __future__ import annotations

from pathlib import Path

import click

from flashdepot.api import libraries as api
from flashdepot.api.acquire import LibraryPlan
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
    warn,
)
from flashdepot.cli.library_commands import show_plan as tell_plan
from flashdepot.cli.options import machine_options
from flashdepot.cli.terminal import Terminal
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.link.vendor.files import has_lfs_filter, ignored, work_tree
from flashdepot.link.vendor.folder import INDEX_NAME, Vendored
from flashdepot.link.vendor.report import Status, TargetReport, VendorReport
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.manifest import MANIFEST_NAME, Manifest
from flashdepot.resolve.project import library_request

DEFAULT_FOLDER = "prebuilt"
_FAULTS_SHOWN = 8


@click.command(
    epilog=examples(
        "flashdepot vendor",
        "flashdepot vendor third_party/flash --profile inference --arch 80,90",
        "flashdepot vendor --check",
        "flashdepot vendor --check --host build-node.json --json",
    )
)
@click.argument("folder", metavar="[DIR]", default=DEFAULT_FOLDER, type=click.Path(path_type=Path))
@options(
    click.option(
        "--check", is_flag=True, help="Check that the libraries there are intact and run on this host; write nothing."
    ),
    click.option(
        "--library",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Use this library, a folder that 'flashdepot get' printed or wrote.",
    ),
    o.selection_options,
    o.build_options,
    o.dry_run_option,
    machine_options,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def vendor(
    folder: Path,
    library: Path | None,
    limits: Limits,
    host: HostRecord | None,
    depot: Path | None,
    *,
    check: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **words: str | None,
) -> None:
    """Put a library into a project's repository, by default into prebuilt/, for Git LFS.

    Each target gets its own folder there, named by platform, CUDA and architectures, with header, libraries, manifest
    and licences. A library with another selection for the same target replaces it. vendor.json lists the targets, and
    .gitattributes gets the lines for Git LFS; nothing else is touched. The library is the one that 'get' takes or
    builds.

    --check reads every byte. It reports Git LFS pointers, missing and changed files, what is different on this host
    from when the library was made, and whether you need a new one. Exit status: 0 intact and runs on this host, 4 does
    not run on it, 6 damaged.
    """
    events = Terminal(quiet=quiet, verbose=verbose, may_ask=not as_json)
    opened = open_depot(depot)
    if check:
        if library is not None:
            raise UsageError(
                "--check looks at what is there, and --library puts something there.", hint="Leave one out."
            )
        named = click.get_current_context().params["host_file"]
        request = o.with_project(words)
        report = api.check_vendored(
            folder, request, host=host, host_file=str(named) if named else None, depot=opened, events=events
        )
        if as_json:
            print_json(report.to_json())
        else:
            answer("\n".join(describe(report, quiet=quiet)))
        click.get_current_context().exit(report.status.exit_code)
    if dry_run:
        _tell_dry_run(folder, library, words, host, opened, limits, events, as_json=as_json)
        return
    if library is not None:
        written, put = api.vendor(folder, library_request(**words), library=library, depot=opened)
    else:
        written, put = api.vendor(
            folder,
            o.with_project(words),
            host=host,
            depot=opened,
            limits=limits,
            events=events,
        )
    _tell(put.manifest, written, as_json=as_json, quiet=quiet)


def _tell_dry_run(
    folder: Path,
    library: Path | None,
    words: dict[str, str | None],
    host: HostRecord | None,
    depot: Depot,
    limits: Limits,
    events: Terminal,
    *,
    as_json: bool,
) -> None:
    if library is not None:
        from flashdepot.link.library import read_library  # noqa: PLC0415

        plan = LibraryPlan(stored=read_library(library).manifest)
    else:
        plan = api.plan_library(o.with_project(words), host=host, depot=depot, limits=limits, events=events)
    tell_plan(plan, as_json=as_json, then=f"Then it is put into {folder}.")


def _tell(manifest: Manifest, written: Vendored, *, as_json: bool, quiet: bool) -> None:
    root = work_tree(written.directory)
    if root is not None:
        paths = [written.folder / file.path for file in manifest.files]
        paths += [written.folder / MANIFEST_NAME, written.directory / INDEX_NAME]
        if left_out := ignored(root, paths):
            warn(
                f"A .gitignore leaves {len(left_out)} of the files out of the repository, {left_out[0]} among them. "
                f"Add them all the same: git add --force {written.directory}"
            )
        if has_lfs_filter(root) is False:
            warn("Git LFS is not set up here, so git would keep the libraries itself. Before git add: git lfs install")
    if as_json:
        print_json(
            {
                "status": "changed" if written.changed else "unchanged",
                "recipe_key": manifest.recipe_key,
                "directory": str(written.directory),
                "path": str(written.folder),
                "manifest": str(written.folder / MANIFEST_NAME),
                "index": str(written.directory / INDEX_NAME),
            }
        )
        return
    if not quiet:
        say(f"{'Written' if written.changed else 'Nothing to do: it is all there'}; {manifest.selection}")
    answer(str(written.folder))


def describe(report: VendorReport, *, quiet: bool) -> list[str]:
    """The verdict in one line, then each target: what is wrong first, what merely differs last."""
    lines = [f"{report.directory}: {report.status.value}"]
    for target in report.targets:
        lines.append(f"  {target.folder}: {target.status.value}")
        lines += _describe_target(target, quiet=quiet)
    if report.status is Status.OTHER_PLATFORM:
        lines.append(f"  mend: flashdepot vendor {report.directory}")
    return lines


def _describe_target(target: TargetReport, *, quiet: bool) -> list[str]:
    lines = [f"    {fault.kind.value}: {fault.path}: {fault.seen}" for fault in target.faults[:_FAULTS_SHOWN]]
    if (more := len(target.faults) - _FAULTS_SHOWN) > 0:
        lines.append(f"    and {more} more files")
    if target.status is not Status.OTHER_PLATFORM:
        lines += [f"    rebuild needed: {reason}" for reason in target.reasons]
        if not quiet:
            lines += [
                f"    {change.topic}: made with {change.made_with}, here {change.here}: {change.why}"
                + ("" if change.rebuild else " (no rebuild needed)")
                for change in target.changes
            ]
            lines += [f"    not part of it: {path}" for path in target.extra[:_FAULTS_SHOWN]]
    if target.mend:
        lines.append(f"    mend: {target.mend}")
    return lines
