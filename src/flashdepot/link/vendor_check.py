"""A vendored folder against its manifests, this host and what the project asks: what was found, and finding it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError, IncompatibleError, UsageError
from flashdepot.fit.requests import unmet
from flashdepot.fit.rules import judge_oldest_gpu
from flashdepot.kernels import oldest_gpu
from flashdepot.link.library import LinkableLibrary, read_library, read_manifest
from flashdepot.link.vendor_folder import (
    INDEX_NAME,
    Fault,
    FaultKind,
    VendoredTarget,
    examine_files,
    examine_manifest,
    pull_command,
    read_index,
    unlisted,
)
from flashdepot.model.codec import plain
from flashdepot.model.diagnosis import Command
from flashdepot.model.host import HostRecord
from flashdepot.model.manifest import MANIFEST_NAME, Manifest
from flashdepot.model.recipe import PUBLISHED
from flashdepot.model.request import Gpus, LibraryRequest, Request
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.target import Platform
from flashdepot.resolve.library import resolve_library


class Status(str, Enum):
    """A verdict; its value is the word for people and documents."""

    FITS = "fits"
    OTHER_PLATFORM = "for another platform"
    DOES_NOT_FIT = "does not fit"
    DAMAGED = "damaged"

    @property
    def exit_code(self) -> int:
        """As of the whole command line: 4 nothing compatible, 6 bytes are not what they should be."""
        return {Status.FITS: 0, Status.OTHER_PLATFORM: 4, Status.DOES_NOT_FIT: 4, Status.DAMAGED: 6}[self]


class TargetReport(msgspec.Struct, frozen=True):
    """One target: faults of its files, files that nobody listed, and why it does not serve this host."""

    folder: str
    faults: tuple[Fault, ...] = ()
    extra: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    other_platform: bool = False
    fix: str = ""

    @property
    def status(self) -> Status:
        """Damage comes before all: bytes that are not there fit nothing."""
        if self.faults:
            return Status.DAMAGED
        if self.other_platform:
            return Status.OTHER_PLATFORM
        return Status.DOES_NOT_FIT if self.reasons else Status.FITS

    @property
    def rebuild(self) -> bool:
        """Whether the host needs another library."""
        return bool(self.reasons) and not self.other_platform

    def to_json(self) -> dict[str, Any]:
        """All fields and what follows from them."""
        row = plain(self)
        del row["other_platform"]
        return {**row, "status": self.status.value, "rebuild": self.rebuild}


class VendorReport(msgspec.Struct, frozen=True):
    """All targets of a folder."""

    directory: str
    targets: tuple[TargetReport, ...]
    without_gpu: bool = False
    """Whether no GPU is there or was named, so that machine code for any is good enough."""

    @property
    def status(self) -> Status:
        """Damaged when any target is; else fits when any does; else that of the targets for this platform, if any."""
        found = [target.status for target in self.targets]
        order = (Status.DAMAGED, Status.FITS, Status.DOES_NOT_FIT, Status.OTHER_PLATFORM)
        return next((status for status in order if status in found), Status.DOES_NOT_FIT)

    @property
    def rebuild(self) -> bool:
        """Whether this host needs a library that is not among them."""
        return bool(self.targets) and all(t.status is not Status.DAMAGED and t.reasons for t in self.targets)

    def to_json(self) -> dict[str, Any]:
        """The one document of ``vendor --check --json``."""
        return {
            "status": self.status.value,
            "exit_code": self.status.exit_code,
            "rebuild": self.rebuild,
            "directory": self.directory,
            "without_gpu": self.without_gpu,
            "targets": [target.to_json() for target in self.targets],
        }


def expected(manifest: Manifest, wanted: LibraryRequest, host: HostRecord, depot: Depot) -> Request:
    """The request that a vendored library must satisfy on a host.

    Where the project says nothing, what is there is what was meant: its source, its selection, its compiler. The GPUs are those that
    are named, else those of the host; with neither, as in CI, any will do.
    """
    request = Request(
        upstreams=manifest.upstreams,
        selection=manifest.selection,
        platform=host.platform,
        gpus=tuple(sorted({gpu.architecture for gpu in host.gpus})),
        driver=host.driver,
        libc=host.libc,
        libc_name=host.libc_name,
        compiler=manifest.toolchain.device_compiler if manifest.toolchain.named else None,
    )
    if wanted == LibraryRequest():
        return request
    of_the_same = manifest.upstream.version if manifest.upstream.origin == PUBLISHED else None
    cuda = None if isinstance(wanted.cuda, Path) else wanted.cuda  # where it is checked, no compiler need be
    need = resolve_library(replace(wanted, upstream=wanted.upstream or of_the_same, cuda=cuda), host, depot).request
    if wanted.upstream is not None or wanted.families is not None:
        asked, there = need.upstreams, manifest.upstreams
        meant = {**there, **asked} if wanted.upstream is not None else {**asked, **there}
        families = asked if wanted.families is not None else there
        request = replace(request, upstreams={family: meant[family] for family in families})
    if wanted.names_selection:
        request = replace(request, selection=need.selection)
    if wanted.arch not in {None, Gpus.NATIVE}:
        request = replace(request, gpus=need.gpus)
    return replace(request, cuda_major=need.cuda_major)


def rebuild_command(directory: str, manifest: Manifest, wanted: LibraryRequest, machine: Mapping[str, Any]) -> str:
    """The command that puts a library for this host there: what the project says, else a selection like this one's."""
    words, selection = wanted.words(), manifest.selection
    if not wanted.names_selection:
        words |= {
            **({"families": ",".join(selection.families)} if selection.families != (DEFAULT_FAMILY,) else {}),
            "passes": ",".join(sorted({str(u.pass_) for u in selection.units})),
            "head_dims": ",".join(map(str, sorted({u.head_dim for u in selection.units}))),
            "dtypes": ",".join(sorted({str(u.dtype) for u in selection.units})),
            "features": ",".join(sorted(map(str, selection.features))) or "none",
        }
    if manifest.upstream.origin == PUBLISHED:
        words.setdefault("upstream", manifest.upstream.version)
    return str(Command("vendor", {**words, **machine}, (directory,)))


def check(
    directory: Path, wanted: LibraryRequest, host: HostRecord, depot: Depot, machine: Mapping[str, Any]
) -> VendorReport:
    """Look at every target of a folder; all of their bytes are read, and nothing is changed.

    :param machine: how the host was named, as options of the commands that are advised.
    :raises UsageError: when the folder was not written by ``vendor``, or for a word that is not known.
    """
    there = require_targets(directory)
    targets = tuple(_check_target(directory, target, wanted, host, depot, machine) for target in there)
    return VendorReport(str(directory), targets, not host.gpus and wanted.arch in {None, Gpus.NATIVE})


def require_targets(directory: Path) -> tuple[VendoredTarget, ...]:
    """The targets of a folder; :raises UsageError: when there is none."""
    targets = read_index(directory)
    if not targets:
        lacks = INDEX_NAME if targets is None else f"{INDEX_NAME} with a target"
        raise UsageError(
            f"{directory} holds no vendored library: it has no {lacks}.",
            hint=f"Put one there: flashdepot vendor {directory}",
        )
    return targets


def choose_vendored(
    directory: Path, host: HostRecord, depot: Depot, platform: Platform | None = None
) -> LinkableLibrary:
    """The smallest of a folder's libraries that runs on a host; their bytes are not read.

    :param platform: the system and CPU that it should be for; of another machine than the host nothing more is known.
    """
    fitting: list[LinkableLibrary] = []
    refused: list[str] = []
    for target in require_targets(directory):
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
    depot: Depot,
    machine: Mapping[str, Any],
) -> TargetReport:
    folder = directory / target.folder
    fault = examine_manifest(folder, target.manifest_digest)
    try:
        manifest = read_manifest(folder)
    except FlashdepotError as error:
        unreadable = fault or Fault(MANIFEST_NAME, FaultKind.CHANGED, error.message)
        return TargetReport(target.folder, (unreadable,), fix=_fix(directory, target.folder, (unreadable,)))
    request = expected(manifest, wanted, host, depot)
    report = TargetReport(
        folder=target.folder,
        faults=((fault,) if fault else ()) + examine_files(folder, manifest),
        extra=unlisted(folder, manifest),
        reasons=unmet(request, manifest),
        other_platform=manifest.platform != host.platform,
    )
    if report.status is Status.DAMAGED:
        same = rebuild_command(str(directory), manifest, wanted, {"arch": ",".join(map(str, manifest.sass))})
        return replace(report, fix=_fix(directory, report.folder, report.faults, "" if fault else same))
    if report.status is Status.DOES_NOT_FIT:
        fatal = judge_oldest_gpu(request.facts, oldest_gpu())
        fix = str(fatal.fix) if fatal is not None else rebuild_command(str(directory), manifest, wanted, machine)
        return replace(report, fix=fix)
    return report


def _fix(directory: Path, folder: str, faults: tuple[Fault, ...], again: str = "") -> str:
    kinds = {fault.kind for fault in faults}
    place = shlex.quote((directory / folder).as_posix())
    otherwise = f"   # not in git yet: rm -r {place} && {again}" if again else ""
    if kinds == {FaultKind.POINTER}:
        return pull_command(directory, folder)
    if FaultKind.LINE_ENDINGS in kinds:  # git checkout by itself sees nothing to do: its index has the same times
        return f"rm -r {place} && git checkout -- {place}{otherwise}"
    return f"git checkout -- {place}{otherwise}"
