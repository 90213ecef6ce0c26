"""Whether a project's set-up for candle still holds: what cargo or the linker would stumble over.

Found before they run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from flashdepot.binary.objects import read_members
from flashdepot.binary.window import (
    COFF_MACHINES,
    ELF_MACHINES,
    FileKind,
    Window,
    identify,
    open_window,
    read_lfs_pointer,
)
from flashdepot.errors import FlashdepotError, IntegrityError
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_toml
from flashdepot.files.output_folder import read_listing
from flashdepot.fit.requests import needs_of_manifest
from flashdepot.fit.rules import judge
from flashdepot.link.candle_archive import CRATE_RECORD, archive_names
from flashdepot.link.candle_project import CandleSetup
from flashdepot.link.candle_versions import CandleLine
from flashdepot.link.library import read_manifest
from flashdepot.model.diagnosis import Command, Diagnosis, Severity, Verdict
from flashdepot.model.environment import Environment
from flashdepot.model.limits import size
from flashdepot.model.target import Platform, spell
from flashdepot.toolchain.choose import OLDER_CUDA

_LFS = "git lfs install && git lfs pull"
_OUR_LIST = re.compile(rb"fa_candle_arguments_(\d{2})\0")
_HEAD = 1 << 20


class CandleNeed(msgspec.Struct, frozen=True):
    """What a set-up must have: for which version, and where it is to run; ``again`` is the command that writes it."""

    version: str
    line: CandleLine
    environment: Environment
    again: Command = Command("link candle", {"write": True})

    @property
    def platform(self) -> Platform:
        """The system and CPU of the build."""
        assert self.environment.platform is not None  # noqa: S101  (for mypy: a machine has one)
        return self.environment.platform


def _wrong(what: str, fix: Command | str) -> Diagnosis:
    """Something that is wrong with a set-up, and what fixes it."""
    return Diagnosis("candle-setup", Severity.BLOCKER, what, "", fix)


def check_setup(setup: CandleSetup, need: CandleNeed) -> Iterator[Diagnosis]:
    """Each thing that would make a build compile, fail, or link a library that does not serve."""
    if not setup.folder.is_dir():
        yield _wrong(f"{setup.folder} is not there, and {setup.said_in} names it.", need.again)
        return
    yield from _crate_version(setup.folder, need)
    place = setup.folder / "lib" / str(need.platform)
    if not place.is_dir():
        what = f"{place.parent} has no folder for {need.platform}, which this is a build for."
        yield _wrong(what, need.again.but(target=str(need.platform)))
        return
    digests = _recorded(setup.folder / CRATE_RECORD)
    for name in archive_names(need.platform.system):
        archive = place / name
        found = _archive(archive, need, digests.get(archive.relative_to(setup.folder).as_posix(), ""))
        if found is not None:
            yield found
    yield from _machine_code(place, need, setup.compute_cap)


def _crate_version(folder: Path, need: CandleNeed) -> Iterator[Diagnosis]:
    manifest = folder / "Cargo.toml"
    found = read_toml(manifest).get("package", {}).get("version") if manifest.is_file() else None
    if found != need.version:
        what = f"{folder} is {need.line.crate} {found}" if found else f"{folder} has no Cargo.toml"
        yield _wrong(f"{what}, and the project uses {need.version}: Cargo ignores it and compiles.", need.again)


def _archive(path: Path, need: CandleNeed, digest: str) -> Diagnosis | None:
    """The first finding, which explains the others."""
    try:
        with open_window(path) as window:
            wrong = _content(window, path, need)
    except OSError as error:
        wrong = _wrong(f"{path} cannot be read: {error.strerror}.", need.again)
    except IntegrityError:
        wrong = _wrong(f"{path}, {size(path.stat().st_size)}, is cut off or damaged.", need.again)
    if wrong is None and digest and sha256_file(path) != digest:
        return _wrong(f"{path} was changed since it was written: its bytes have another digest.", need.again)
    return wrong


def _content(window: Window, path: Path, need: CandleNeed) -> Diagnosis | None:
    kind = identify(window)
    if kind is FileKind.LFS_POINTER:
        pointer = read_lfs_pointer(window.head(_HEAD))
        stands = f" for a file of {size(pointer.size)}" if pointer else ""
        return _wrong(f"{path} is a Git LFS pointer{stands}, not a library.", _LFS)
    if kind is not FileKind.ARCHIVE:
        return _wrong(f"{path} is not a static library: {kind.value}.", need.again)
    platforms = {found for member in read_members(window) if (found := _platform(member.window))}
    if not platforms:
        return _wrong(f"{path} has no object in it.", need.again)
    if platforms != {need.platform}:
        made_for = ", ".join(sorted(map(str, platforms)))
        return _wrong(
            f"{path} is for {made_for}, and this is a build for {need.platform}.",
            need.again.but(target=str(need.platform)),
        )
    return _call(window, path, need)


def _call(window: Window, path: Path, need: CandleNeed) -> Diagnosis | None:
    index = window.head(_HEAD)
    ours = _OUR_LIST.search(index)
    if ours is None:
        what = "has no run_mha: it is not an archive for candle."
        if b"run_mha\0" in index:
            what = "was not made by 'flashdepot link candle': which version of candle its run_mha is for cannot be determined."
        return _wrong(f"{path} {what}", need.again)
    if int(ours[1]) != need.line.archive:
        return _wrong(
            f"{path} has run_mha with {int(ours[1])} arguments, and {need.line.crate} {need.version} wants that of "
            f"{need.line.archive}: it would link, and compute wrong numbers.",
            need.again,
        )
    return None


def _platform(member: Window) -> Platform | None:
    head = member.head(20)
    kind = identify(member)
    if kind is FileKind.ELF_OBJECT:
        return Platform("linux", ELF_MACHINES.get(int.from_bytes(head[18:20], "little"), "another CPU"))
    if kind is FileKind.COFF_OBJECT:
        return Platform("windows", COFF_MACHINES[int.from_bytes(head[:2], "little")])
    return None


def _machine_code(folder: Path, need: CandleNeed, compute_cap: str) -> Iterator[Diagnosis]:
    """:param compute_cap: the oldest GPU that the rest of candle is compiled for, if it is said."""
    try:
        manifest = read_manifest(folder)
    except FlashdepotError:
        return  # an archive of somebody else's says nothing of itself
    code = f"The library has machine code for {spell(manifest.sass)}, and"
    again = need.again.but(get=True)
    digits = re.sub(r"\D", "", compute_cap)
    broken = {r.id: r for r in judge(needs_of_manifest(manifest), need.environment) if r.verdict is Verdict.MISFIT}
    if "sass" in broken:
        unserved = [g for g in need.environment.gpus if not any(sass.runs_on(g) for sass in manifest.sass)]
        yield _wrong(f"{code} none of it runs on {unserved[0].sm}.", again)
    elif digits and all(sass.major < int(digits) // 10 for sass in manifest.sass):
        yield _wrong(f"{code} none of it runs on {compute_cap} or newer, as CUDA_COMPUTE_CAP says.", again)
    if (driver := broken.get("driver")) is not None:
        older = f" Or: {again}" if manifest.toolchain.cuda.major > OLDER_CUDA.major else ""
        yield _wrong(f"The library {driver.clause}.", f"{driver.fix}{older}")


def _recorded(path: Path) -> Mapping[str, str]:
    try:
        return {place: next(iter(found)) for place, found in read_listing(path.read_bytes()).items()}
    except (OSError, ValueError):
        return {}
