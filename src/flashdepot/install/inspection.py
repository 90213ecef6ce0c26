"""Whether a wheel may be installed at all: found out from its bytes, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from flashdepot.doctor.check import Evidence, Outcome, Report, check_file
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.torch_side import read_installed_torch
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, UsageError
from flashdepot.install.entry_points import require_plain_entry_points
from flashdepot.install.present import DISTRIBUTION
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.host import HostRecord
from flashdepot.model.python_environment import PythonEnvironment

_LINES_SHOWN = 6


def inspect(
    wheel: WheelFile, environment: PythonEnvironment, record: HostRecord, on_note: Callable[[str], None]
) -> str:
    """Refuse a wheel that is damaged, is not what it says, or does not fit.

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
    require_plain_entry_points(wheel.path)
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


def _place(environment: PythonEnvironment, record: HostRecord) -> Place:
    torch = environment.torch
    return Place(
        host=replace(record, platform=environment.runs_on, libc=environment.libc),
        gpus=tuple(sorted({gpu.architecture for gpu in record.gpus})),
        python=environment,
        torch=read_installed_torch(torch) if torch is not None else None,
        is_here=True,
    )


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
