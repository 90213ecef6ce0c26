"""Whether a wheel may be installed at all: found out from its bytes, before anything is changed."""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from flashdepot.doctor.check import Evidence, Outcome, Report, check_file
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.torch_side import read_installed_torch
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, UsageError
from flashdepot.install.present import DISTRIBUTION, others, own_files, programs, targets
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.host import HostRecord
from flashdepot.model.python_environment import Environment

_LINES_SHOWN = 6


def inspect(wheel: WheelFile, environment: Environment, record: HostRecord, on_note: Callable[[str], None]) -> str:
    """Refuse a wheel that is damaged, is not what it says, does not fit, or would overwrite what others installed.

    :param record: of this machine; its GPUs and driver matter.
    :param on_note: called with what cannot be told from the bytes and is left to the import to prove.
    :returns: the version that its METADATA says.
    :raises IntegrityError: for one that is damaged or lies, with the evidence.
    :raises IncompatibleError: for one that does not fit, with the evidence.
    :raises UsageError: for one of another project.
    """
    report = check_file(wheel.path, _place(environment, record))
    if (error := objection(report, environment.executable)) is not None:
        raise error
    for line in report.evidence:
        if line.outcome is Outcome.UNKNOWN:
            on_note(f"{line.topic}: {line.seen}: {line.has or 'cannot be told'}; the import will show.")
    _require_own_files(wheel.path, environment)
    return str(report.facts["version"])


def objection(report: Report, python: Path) -> FlashdepotError | None:
    """The error that a report comes to; ``None`` when the wheel may be tried."""
    name = Path(report.path).name
    if report.verdict is Outcome.DAMAGED:
        evidence = _spell(report.evidence, Outcome.DAMAGED)
        return IntegrityError(f"{name} is refused: it is not what it should be.\n{evidence}", hint=_fix(report))
    if report.verdict is Outcome.MISFIT:
        evidence = _spell(report.evidence, Outcome.MISFIT)
        return IncompatibleError(f"{name} does not fit {python}.\n{evidence}", hint=_fix(report))
    if report.kind != "wheel":
        return UsageError(f"{name} is a {report.kind}, not a wheel.", hint="Name a wheel: --wheel FILE.whl")
    found = str(report.facts["name"])
    if canonicalize_name(found) != DISTRIBUTION:
        return UsageError(f"{name} is a wheel of {found}, and this installs {DISTRIBUTION}.", hint="Use pip or uv.")
    return None


def _place(environment: Environment, record: HostRecord) -> Place:
    torch = environment.torch
    return Place(
        host=replace(record, platform=environment.runs_on, libc=environment.libc),
        gpus=tuple(sorted({gpu.architecture for gpu in record.gpus})),
        python=environment,
        torch=read_installed_torch(torch) if torch is not None else None,
        is_here=True,
    )


def _require_own_files(wheel: Path, environment: Environment) -> None:
    """Refuse a wheel that brings files of another distribution, which no rollback should have to save."""
    with zipfile.ZipFile(wheel) as archive:
        brought_programs = [environment.scripts / name for name in programs(archive)]
        brought_files = {*targets(archive.namelist(), environment), *brought_programs}
    wanted = {path for path in brought_files if path.is_file() or path.is_symlink()}
    _require_own_programs(wheel, wanted, environment)
    if not wanted:
        return
    for distribution in others(environment):
        root = str(distribution.locate_file(""))
        brought = {Path(os.path.relpath(path, root)).as_posix(): path for path in wanted}
        for name in brought.keys() & _recorded(distribution):
            raise IntegrityError(
                f"{wheel.name} is refused: it brings {brought[name]}, which is a file of "
                f"{distribution.metadata['Name']}.",
                hint="A wheel of flash-attn has no business there: take another one.",
            )


def _require_own_programs(wheel: Path, wanted: set[Path], environment: Environment) -> None:
    """Refuse to replace a program that is no earlier flash-attn's: many, such as Python's own, no RECORD names."""
    known = {Path(os.path.normpath(path)) for path in own_files(environment)}
    for path in sorted(wanted):
        if path.parent == environment.scripts and path not in known:
            raise IntegrityError(
                f"{wheel.name} is refused: it brings {path}, which is there already and is no program of flash-attn.",
                hint="Take another wheel, or remove that program first.",
            )


def _recorded(distribution: Distribution) -> set[str]:
    """The names of its files, relative to where it is installed; the disk is not asked for each."""
    record = distribution.read_text("RECORD")
    if record is None:
        return {file.as_posix() for file in distribution.files or ()}
    return {row[0] for row in csv.reader(record.splitlines()) if row}


def _spell(evidence: Iterable[Evidence], outcome: Outcome) -> str:
    lines = []
    for line in evidence:
        if line.outcome is outcome:
            where = f" [{line.where}]" if line.where else ""
            lines.append(f"  {line.topic}: {line.seen}{f' | {line.has}' if line.has else ''}{where}")
    more = len(lines) - _LINES_SHOWN
    return "\n".join(lines[:_LINES_SHOWN] + ([f"  and {more} more lines of evidence"] if more > 0 else []))


def _fix(report: Report) -> str:
    fix = next((line.fix for line in report.evidence if line.fix), "Take another wheel.")
    return f"Nothing was changed. {fix}"
