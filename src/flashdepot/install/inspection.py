"""Whether a wheel may be installed at all: found out from its bytes, before anything is changed."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from flashdepot.diagnose.check.evidence import Evidence, Outcome, Report
from flashdepot.diagnose.check.place import Place, read_installed_torch
from flashdepot.diagnose.check.run import check_file
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, UsageError
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.host import HostRecord
from flashdepot.model.wheel import FLASH_ATTN
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.wheel_files import WheelFile

_GROUP = re.compile(r"\[([A-Za-z0-9_][A-Za-z0-9_.-]*)\]")
_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_ENTRY = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9_.-]*) *= *{_DOTTED}:{_DOTTED} *")
_BLANK = re.compile(r" *|#[ -~]*")
_PROGRAMS = {"console_scripts", "gui_scripts"}
_INSTALLERS = ("pip", "easy_install", "python")
"""Installers write further programs for these names: ``pip3``, ``pip3.12``."""


def declared_programs(data: bytes, wheel: str) -> list[str]:
    """The names in the groups of programs of an ``entry_points.txt``, which must not be such that installers read it differently.

    Installers use Python's configparser or one of their own: what ends a line, what continues one, and how much of a
    broken line counts differs (https://packaging.python.org/en/latest/specifications/entry-points/ leaves it open).

    :raises IntegrityError: for all but ASCII lines ``[group]``, ``name = module:object`` and ``# comment``.
    """
    names: list[str] = []
    groups: set[str] = set()
    seen: set[tuple[str, str]] = set()
    group = ""
    for line in data.replace(b"\r\n", b"\n").split(b"\n"):
        text = line.decode("ascii", "replace")
        if header := _GROUP.fullmatch(text):
            group = header[1]
            plain = group not in groups
            groups.add(group)
        elif entry := _ENTRY.fullmatch(text):
            known = ("program" if group in _PROGRAMS else group, entry[1].casefold())
            plain = bool(group) and known not in seen
            seen.add(known)
            names += [entry[1]] if group in _PROGRAMS else []
        else:
            plain = _BLANK.fullmatch(text) is not None
        if not plain:
            raise IntegrityError(
                f"{wheel} is refused: its entry_points.txt has the line {text!r}, which installers may read differently.",
                hint="Nothing was changed. Take another wheel.",
            )
    for name in names:
        require_own_name(name, wheel)
    return names


def require_own_name(program: str, wheel: str) -> None:
    """Refuse a program that takes the name of an installer or of Python; :raises IntegrityError: for one."""
    if program.casefold().startswith(_INSTALLERS):
        raise IntegrityError(
            f"{wheel} is refused: it brings a program {program!r}, the name of an installer or of Python.",
            hint="Nothing was changed. Take another wheel.",
        )


_EVIDENCE_SHOWN = 6


def inspect(
    wheel: WheelFile, environment: PythonEnvironment, record: HostRecord, on_note: Callable[[str], None]
) -> str:
    """Refuse a wheel that is damaged, is not what it says, or does not fit.

    :param record: of this machine; its GPUs and driver matter.
    :param on_note: called with what cannot be determined from the bytes and is left to the import to prove.
    :returns: the version that its METADATA says.
    """
    report = check_file(wheel.path, _place(environment, record))
    if (error := objection(report, environment.executable)) is not None:
        raise error
    for line in report.evidence:
        if line.outcome is Outcome.UNKNOWN and (line.topic != "architectures" or record.gpus):  # no import tells
            on_note(f"{line.topic}: {line.seen}: {line.has or 'cannot be determined'}; the import will show.")
    with zipfile.ZipFile(wheel.path) as archive:
        for member in archive.namelist():
            path = PurePosixPath(member.casefold())
            if path.name == "entry_points.txt" and path.parent.name.endswith(".dist-info"):
                declared_programs(archive.read(member), wheel.path.name)
    return str(report.facts["version"])


def objection(report: Report, python: Path) -> FlashdepotError | None:
    """The error for a report; ``None`` when the wheel may be tried."""
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
    if canonicalize_name(found) != FLASH_ATTN:
        return UsageError(f"{name} is a wheel of {found}, and this installs {FLASH_ATTN}.", hint="Use pip or uv.")
    return None


def _place(environment: PythonEnvironment, record: HostRecord) -> Place:
    torch = environment.torch
    host = replace(record, platform=environment.runs_on, libc=environment.libc, python=environment)
    return Place(
        host=host,
        python=environment,
        torch=read_installed_torch(torch) if torch is not None else None,
        is_here=True,
        environment=facts_of(host),
    )


def _spell(evidence: Iterable[Evidence], outcome: Outcome) -> str:
    lines = []
    for line in evidence:
        if line.outcome is outcome:
            where = f" [{line.where}]" if line.where else ""
            lines.append(f"  {line.topic}: {line.seen}{f' | {line.has}' if line.has else ''}{where}")
    more = len(lines) - _EVIDENCE_SHOWN
    return "\n".join(lines[:_EVIDENCE_SHOWN] + ([f"  and {more} more lines of evidence"] if more > 0 else []))


def _fix(report: Report) -> str:
    fix = next((line.fix for line in report.evidence if line.fix), "Take another wheel.")
    return f"Nothing was changed. {fix}"
