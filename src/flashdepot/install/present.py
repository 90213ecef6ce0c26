"""Before an installation: what prevents it in the environment or the wheel, what is there, and which program manages it."""

from __future__ import annotations

import csv
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from flashdepot.diagnose.check.judge import Evidence, Outcome
from flashdepot.diagnose.check.place import Place, read_installed_torch
from flashdepot.diagnose.check.run import Report, check_file
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, MissingToolError, UsageError
from flashdepot.files.folders import sha256_files
from flashdepot.model.diagnosis import Diagnosis, Severity, Verdict
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import joined
from flashdepot.model.wheel import FLASH_ATTN, in_record
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.wheel_files import WheelFile


def environment_of(record: HostRecord) -> PythonEnvironment:
    """The environment of a record, to install into."""
    if record.python is None:
        raise UsageError(
            record.no_python or "The record has no Python environment.",
            hint="Activate one, or name its interpreter: flashdepot install --python .venv/bin/python",
        )
    return record.python


def require_no_obstacle(findings: Sequence[Diagnosis], python: Path, on_warning: Callable[[str], None]) -> None:
    """Stop where an installation cannot work; tell what may keep it from working. The worst finding comes first."""
    blockers = [finding for finding in findings if finding.verdict is Verdict.MISFIT]
    if blockers:
        first, more = blockers[0], len(blockers) - 1
        others = f"\n{more} more: flashdepot doctor install --python {joined([python])}" if more else ""
        never = any(finding.severity is Severity.MISFIT for finding in blockers)
        raise (IncompatibleError if never else MissingToolError)(first.sentence, hint=f"{first.fix}{others}")
    for finding in findings:
        if finding.severity is Severity.WARNING:
            on_warning(f"{finding.sentence} {finding.fix}")


def present_version(environment: PythonEnvironment) -> str | None:
    """The version that is installed; ``None`` without one."""
    return next((found.version for found in _flash_attn(environment)), None)


def holds(environment: PythonEnvironment, wheel: Path, version: str) -> bool:
    """Whether the flash-attn that is there is that of a wheel, byte for byte by the wheel's own record."""
    if [found.version for found in _flash_attn(environment)] != [version]:
        return False
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = [row for row in csv.reader(archive.read(record).decode().splitlines()) if row[1]]
    digests = sha256_files([environment.platlib / name for name, *_ in rows])
    return all(
        has and f"sha256={in_record(bytes.fromhex(has))}" == wants
        for has, (_, wants, *_) in zip(digests, rows, strict=True)
    )


def own_files(environment: PythonEnvironment) -> list[Path]:
    """The files of the flash-attn that is there, by its own records, and what Python compiled of them."""
    found: list[Path] = []
    for distribution in _flash_attn(environment):
        _require_replaceable(distribution, environment)
        listed = [Path(os.path.normpath(str(distribution.locate_file(file)))) for file in distribution.files or ()]
        modules = {path.parent / "__pycache__" / path.stem for path in listed if path.suffix == ".py"}
        caches = {path for folder in {module.parent for module in modules} for path in folder.glob("*.pyc")}
        compiled = {path for path in caches if path.parent / path.name.partition(".")[0] in modules}
        found += [*listed, *sorted(compiled.difference(listed))]
    return found


def owner_of(path: Path, environment: PythonEnvironment) -> str | None:
    """The distribution that a file is of; ``None`` where no record names it."""
    for distribution in installed(environment):
        name = Path(os.path.relpath(path, str(distribution.locate_file("")))).as_posix()
        if name in _recorded(distribution):
            return str(distribution.metadata["Name"])
    return None


def installed(environment: PythonEnvironment) -> Iterator[Distribution]:
    """All that is installed in the environment's own folders."""
    sites = dict.fromkeys((str(environment.platlib), str(environment.purelib)))
    return iter(distributions(path=list(sites)))


def _flash_attn(environment: PythonEnvironment) -> Iterator[Distribution]:
    return (d for d in installed(environment) if canonicalize_name(d.metadata["Name"] or "") == FLASH_ATTN)


def _require_replaceable(distribution: Distribution, environment: PythonEnvironment) -> None:
    version, python = distribution.version, environment.executable
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        raise UsageError(
            f"flash-attn {version} in {environment.prefix} was installed by conda, whose records would become wrong.",
            hint=f"Remove it first: conda remove --prefix {environment.prefix} flash-attn",
        )
    if distribution.files is None:
        raise UsageError(
            f"flash-attn {version} in {environment.prefix} was not installed by pip or uv: nothing "
            "says which files are its own, so it could not be put back.",
            hint=f"Remove it first: {python} -m pip uninstall flash-attn",
        )


def _recorded(distribution: Distribution) -> set[str]:
    """The names of its files, relative to where it is installed; the disk is not asked for each."""
    record = distribution.read_text("RECORD")
    if record is None:
        return {file.as_posix() for file in distribution.files or ()}
    return {row[0] for row in csv.reader(record.splitlines()) if row}


_APPLICATIONS = {
    "pipx_metadata.json": ("pipx", "'pipx upgrade' and 'pipx reinstall' make it again.", "pipx inject {app} {{wheel}}"),
    "uv-receipt.toml": ("uv tool", "'uv tool upgrade' makes it again.", "uv tool install {app} --with {{wheel}}"),
}
_PROJECTS = {
    "uv.lock": ("uv", "'uv sync' takes it away.", "uv add {wheel}"),
    "poetry.lock": ("poetry", "'poetry sync' takes it away.", "poetry add {wheel}"),
    "pdm.lock": ("pdm", "'pdm sync --clean' takes it away.", "pdm add {wheel}"),
    "Pipfile.lock": ("pipenv", "'pipenv clean' takes it away.", "pipenv install {wheel}"),
}
"""By the file that shows it: the program, what happens to a package that it does not know, and how to make it known."""


class Keeper(msgspec.Struct, frozen=True):
    """A program that keeps an environment: its name, and the file or folder that shows it.

    ``refuses``: its environments are for one application, and installing next to it is wrong; otherwise pip and uv may
    install there, with ``consequence``. ``command`` has ``{wheel}`` where the address or path of a wheel goes.
    """

    name: str
    marker: Path
    consequence: str
    command: str
    refuses: bool = False


def find_keeper(prefix: Path) -> Keeper | None:
    """The program that keeps an environment, known by its marker files; ``None`` for a plain virtual environment.

    The files are those that the programs document: pipx ``pipx_metadata.json``, uv tools ``uv-receipt.toml``, conda
    ``conda-meta`` (``conda-meta/frozen`` by CEP 22), pixi ``.pixi/envs``, projects by their lock file.
    """
    for file, (name, consequence, command) in _APPLICATIONS.items():
        if (marker := prefix / file).is_file():
            return Keeper(name, marker, consequence, command.format(app=prefix.name), refuses=True)
    if (marker := prefix / "conda-meta").is_dir():
        return _conda(prefix, marker)
    for folder in (prefix.parent, *_named_project(prefix)):
        for file, known in _PROJECTS.items():
            if (folder / file).is_file():
                return Keeper(known[0], folder / file, *known[1:])
    if prefix.parent.name == "virtualenvs" and prefix.parent.parent.name in {"pypoetry", ".poetry"}:
        return Keeper("poetry", prefix.parent, *_PROJECTS["poetry.lock"][1:])
    return None


def require_free(keeper: Keeper | None, prefix: Path, wheel: str) -> None:
    """Refuse an environment that is for one application."""
    if keeper is not None and keeper.refuses:
        raise UsageError(
            f"{prefix} is kept by {keeper.name} ({keeper.marker.name} says so): {keeper.consequence}",
            hint=f"Use its own command: {keeper.command.format(wheel=wheel)}",
        )


def advice(keeper: Keeper, wheel: str) -> str:
    """What a user of that program should know after an installation of a wheel, by its address or path, next to it."""
    said = f"{keeper.name} keeps this environment and does not know of flash-attn: {keeper.consequence}"
    text = f"{said} To make it known: {keeper.command.format(wheel=wheel)}"
    if keeper.name == "uv" and "://" in wheel:
        text += f'\n  or in pyproject.toml, under [tool.uv.sources]: flash-attn = {{ url = "{wheel}" }}'
    return text


def _conda(prefix: Path, marker: Path) -> Keeper:
    if (frozen := marker / "frozen").is_file():
        command = "conda create --name attention python, and install there"
        return Keeper("conda", frozen, "it is marked as not to be changed (CEP 22).", command, refuses=True)
    if ".pixi" in prefix.parts:
        command = "pixi add --pypi 'flash-attn @ {wheel}'"
        return Keeper("pixi", marker, "'pixi install' may take it away when it solves again.", command)
    consequence = "'conda list' shows it as a package from PyPI, and conda's solver ignores it."
    command = "in environment.yml, under '- pip:', the line '- flash-attn @ {wheel}'"
    return Keeper("conda", marker, consequence, command)


def _named_project(prefix: Path) -> tuple[Path, ...]:
    """pipenv keeps environments away from projects, and writes the project's folder into one file there."""
    try:
        return (Path((prefix / ".project").read_text().strip()),)
    except (OSError, ValueError):
        return ()


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
    if report.verdict in {Outcome.DAMAGED, Outcome.MISFIT}:
        is_damaged, evidence = report.verdict is Outcome.DAMAGED, _spell(report.evidence, report.verdict)
        said = "is refused: it is not what it should be." if is_damaged else f"does not fit {python}."
        fix = next((line.fix for line in report.evidence if line.fix), "Take another wheel.")
        kind = IntegrityError if is_damaged else IncompatibleError
        return kind(f"{name} {said}\n{evidence}", hint=f"Nothing was changed. {fix}")
    if report.kind != "wheel":
        return UsageError(f"{name} is a {report.kind}, not a wheel.", hint="Name a wheel: --wheel FILE.whl")
    found = str(report.facts["name"])
    if canonicalize_name(found) != FLASH_ATTN:
        return UsageError(
            f"{name} is a wheel of {found}, and this installs {FLASH_ATTN}.", hint="Install it with pip or uv."
        )
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
