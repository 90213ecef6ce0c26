"""A vendored folder against its manifests, this host and what the project asks."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, IncompatibleError, UsageError
from flashdepot.families import default_family
from flashdepot.families.c_layer import c_layer_digest
from flashdepot.fit.requests import unmet
from flashdepot.link.library import LinkableLibrary, read_library, read_manifest
from flashdepot.link.vendor.expect import expected, rebuild_command
from flashdepot.link.vendor.files import examine_files, examine_manifest, unlisted
from flashdepot.link.vendor.git import pull_command
from flashdepot.link.vendor.index import INDEX_NAME, VendoredTarget, VendorIndex, read_index
from flashdepot.link.vendor.judge import changes
from flashdepot.link.vendor.report import Fault, FaultKind, Status, TargetReport, VendorReport
from flashdepot.model.host import HostRecord
from flashdepot.model.library_request import LibraryRequest
from flashdepot.model.manifest import MANIFEST_NAME, Manifest
from flashdepot.model.target import Platform


def check(
    directory: Path, wanted: LibraryRequest, host: HostRecord, host_file: str | None, depot: Depot
) -> VendorReport:
    """Look at every target of a folder; all of their bytes are read, and nothing is changed.

    :raises UsageError: when the folder was not written by ``vendor``, or for a word that is not known.
    :raises IntegrityError: when its index is damaged.
    """
    index = require_index(directory)
    targets = tuple(_check_target(directory, target, wanted, host, host_file, depot) for target in index.targets)
    return VendorReport(str(directory), targets)


def require_index(directory: Path) -> VendorIndex:
    """The index of a folder; :raises UsageError: when there is none."""
    index = read_index(directory)
    if index is None or not index.targets:
        raise UsageError(
            f"{directory} holds no vendored library: it has no {INDEX_NAME}{' with a target' if index else ''}.",
            hint=f"Put one there: flashdepot vendor {directory}",
        )
    return index


def choose_vendored(
    directory: Path, host: HostRecord, depot: Depot, platform: Platform | None = None
) -> LinkableLibrary:
    """The smallest of a folder's libraries that runs on a host; their bytes are not read.

    :param platform: the system and CPU that it shall be for; of another machine than the host nothing more is known.
    :raises IncompatibleError: when none does.
    """
    fitting: list[LinkableLibrary] = []
    refused: list[str] = []
    for target in require_index(directory).targets:
        library = read_library(directory / target.folder)
        there = library.manifest.platform
        reasons: tuple[str, ...] = () if there == platform else (f"is for {there}",)
        if platform in {None, host.platform}:
            reasons = unmet(expected(library.manifest, LibraryRequest(), host, depot), library.manifest)
        if reasons:
            refused.append(f"{target.folder} {'; '.join(reasons)}")
        else:
            fitting.append(library)
    if not fitting:
        raise IncompatibleError(
            f"{directory} has no library for {platform or 'this host'}: {'. '.join(refused)}.",
            hint=f"Put one there: flashdepot vendor {directory}{f' --target {platform}' if platform else ''}",
        )
    return min(fitting, key=lambda library: library.manifest.size)


def _check_target(
    directory: Path,
    target: VendoredTarget,
    wanted: LibraryRequest,
    host: HostRecord,
    host_file: str | None,
    depot: Depot,
) -> TargetReport:
    folder = directory / target.folder
    fault = examine_manifest(folder, target.manifest_digest)
    try:
        manifest = read_manifest(folder)
    except FlashdepotError as error:
        unreadable = fault or Fault(MANIFEST_NAME, FaultKind.CHANGED, error.message)
        return TargetReport(target.folder, (unreadable,), mend=_mend(directory, target.folder, (unreadable,)))
    faults = ((fault,) if fault else ()) + examine_files(folder, manifest)
    request = expected(manifest, wanted, host, depot)
    reasons = unmet(request, manifest)
    report = TargetReport(
        folder=target.folder,
        faults=faults,
        extra=unlisted(folder, manifest),
        changes=changes(manifest, host, request, default_family().sources.default_version(), c_layer_digest()),
        reasons=reasons,
        other_platform=manifest.platform != host.platform,
    )
    return _with_mend(report, directory, manifest, wanted, host_file)


def _with_mend(
    report: TargetReport, directory: Path, manifest: Manifest, wanted: LibraryRequest, host_file: str | None
) -> TargetReport:
    if report.status is Status.DAMAGED:
        mend = _mend(directory, report.folder, report.faults)
    elif report.status is Status.DOES_NOT_FIT:
        mend = rebuild_command(str(directory), manifest, wanted, host_file)
    else:
        mend = ""
    return replace(report, mend=mend)


def _mend(directory: Path, folder: str, faults: tuple[Fault, ...]) -> str:
    kinds = {fault.kind for fault in faults}
    place = shlex.quote((directory / folder).as_posix())
    if kinds == {FaultKind.POINTER}:
        return pull_command(directory, folder)
    if FaultKind.LINE_ENDINGS in kinds:  # git checkout alone sees nothing to do: its index has the same times
        return f"rm -r {place} && git checkout -- {place}"
    return f"git checkout -- {place}"
