"""``flashdepot vendor``: a library in a project's repository, written and checked."""

from __future__ import annotations

from pathlib import Path

import click

from flashdepot.api import libraries as api
from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli.common import command, flag, options, path_option
from flashdepot.cli.library_commands import plan_view
from flashdepot.cli.options import Asked, library_options, named_machine
from flashdepot.cli.output import View, is_quiet, warn
from flashdepot.errors import UsageError
from flashdepot.host import probe
from flashdepot.link.library import read_library
from flashdepot.link.vendor_check import Status, TargetReport, VendorReport
from flashdepot.link.vendor_check import check as check_vendored
from flashdepot.link.vendor_folder import INDEX_NAME, Vendored, has_lfs_filter, ignored, work_tree
from flashdepot.model.manifest import MANIFEST_NAME, Manifest

DEFAULT_FOLDER = "prebuilt"
_FAULTS_SHOWN = 8


@command(
    "flashdepot vendor",
    "flashdepot vendor third_party/flash --profile inference --arch 80,90",
    "flashdepot vendor --check",
    "flashdepot vendor --check --host build-node.json --json",
)
@click.argument("folder", metavar="[DIR]", default=DEFAULT_FOLDER, type=click.Path(path_type=Path))
@options(
    flag("--check  Check that the libraries there are intact and run on this host; write nothing."),
    path_option("--library DIR  Use this library, a folder that 'flashdepot get' printed or wrote."),
    library_options,
)
def vendor(folder: Path, library: Path | None, asked: Asked, *, check: bool) -> View:
    """Put a library into a project's repository, by default into prebuilt/, for Git LFS.

    Each target gets its own folder there, named by platform, CUDA and architectures, with header, libraries, manifest
    and licences. A library with another selection for the same target replaces it. vendor.json lists the targets, and
    .gitattributes gets the lines for Git LFS; nothing else is touched. The library is the one that 'get' takes or
    builds.

    --check reads every byte. It reports Git LFS pointers, missing and changed files, and whether you need a new library. Exit code: 0 intact and runs on this host, 4 does
    not run on it, 6 damaged.
    """
    if str(folder) == "check" and not folder.exists():
        raise UsageError("There is no folder 'check'.", meant=("check", "--check"))
    if check:
        if library is not None:
            raise UsageError(
                "--check only reads the folder, and --library writes into it: they exclude each other.",
                hint="Leave one out.",
            )
        host = asked.host or probe(depot=asked.depot.root)
        report = check_vendored(folder, asked.wanted.request, host, asked.depot, named_machine())
        return View(report.to_json(), describe(report), status=report.status.exit_code)
    if asked.dry_run:
        plan = (
            LibraryPlan(stored=read_library(library).manifest)
            if library is not None
            else api.plan_library(asked.wanted.request, **asked.how)
        )
        return plan_view(plan, then=f"Then it is put into {folder}.")
    request = asked.wanted.named if library is not None else asked.wanted.request
    written, put = api.vendor(folder, request, library=library, **asked.how)
    return _written(put.manifest, written)


def _written(manifest: Manifest, written: Vendored) -> View:
    root = work_tree(written.directory)
    if root is not None:
        paths = [written.folder / file.path for file in manifest.files]
        paths += [written.folder / MANIFEST_NAME, written.directory / INDEX_NAME]
        if left_out := ignored(root, paths):
            warn(
                f"A .gitignore leaves {len(left_out)} of the files out of the repository, {left_out[0]} among them. "
                f"Add them anyway: git add --force {written.directory}"
            )
        if has_lfs_filter(root) is False:
            warn("Git LFS is not set up here, so git would keep the libraries itself. Before git add: git lfs install")
    document = {
        "status": "changed" if written.changed else "unchanged",
        "recipe_key": manifest.recipe_key,
        "directory": str(written.directory),
        "path": str(written.folder),
        "manifest": str(written.folder / MANIFEST_NAME),
        "index": str(written.directory / INDEX_NAME),
    }
    said = f"{'Written' if written.changed else 'Nothing to do: it is all there'}; {manifest.selection}"
    return View(document, [str(written.folder)], [said])


def describe(report: VendorReport) -> list[str]:
    """The verdict in one line, then each target: what is wrong first, what merely differs last."""
    lines = [f"{report.directory}: {report.status.value}"]
    if report.without_gpu and report.status is Status.FITS:
        lines[0] += "; its machine code was not compared with a GPU, since none is here or was named: --gpu 9.0"
    for target in report.targets:
        lines.append(f"  {target.folder}: {target.status.value}")
        lines += _describe_target(target)
    if report.status is Status.OTHER_PLATFORM:
        lines.append(f"  fix: flashdepot vendor {report.directory}")
    return lines


def _describe_target(target: TargetReport) -> list[str]:
    lines = [f"    {fault.kind.value}: {fault.path}: {fault.seen}" for fault in target.faults[:_FAULTS_SHOWN]]
    if (more := len(target.faults) - _FAULTS_SHOWN) > 0:
        lines.append(f"    and {more} more files")
    if target.status is not Status.OTHER_PLATFORM:
        lines += [f"    rebuild needed: it {reason}" for reason in target.reasons]
        if not is_quiet():
            lines += [f"    not part of it: {path}" for path in target.extra[:_FAULTS_SHOWN]]
    if target.fix:
        lines.append(f"    fix: {target.fix}")
    return lines
