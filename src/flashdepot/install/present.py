"""The flash-attn that an environment has, and the files that installing another changes."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from itertools import chain
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.python_environment import Environment

DISTRIBUTION = "flash-attn"
_CACHE = "__pycache__"
_ENTRY_POINTS = "entry_points.txt"
_PROGRAM_GROUPS = {"console_scripts", "gui_scripts"}
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_INSTALLERS = ("pip", "easy_install", "python")
"""pip writes further programs for these names: ``pip3``, ``pip3.12``."""

_UV_LOCK = ".lock"


def present_version(environment: Environment) -> str | None:
    """The version that is installed; ``None`` without one."""
    return next((found.version for found in _installed(environment)), None)


def places(environment: Environment, wheel: Path) -> list[Path]:
    """The files and folders that installing a wheel can change: those of the flash-attn that is there, and its own.

    A package's folder counts as a whole, with what others have put there since: compiled modules, later additions.

    :raises UsageError: when what is there does not say which files are its own, or is another installer's to remove.
    """
    found: set[Path] = {environment.prefix / _UV_LOCK}
    for distribution in _installed(environment):
        _require_replaceable(distribution, environment)
        for file in distribution.files or ():
            path = Path(os.path.normpath(str(distribution.locate_file(file))))
            found.add(_whole(path, environment))
    with zipfile.ZipFile(wheel) as archive:
        scripts = (environment.scripts / f"{name}{suffix}" for name in programs(archive) for suffix in ("", ".exe"))
        for path in chain(targets(archive.namelist(), environment), scripts):
            found.add(_whole(path, environment))
    return sorted(found)


def own_files(environment: Environment) -> Iterator[Path]:
    """The files of the flash-attn that is there, by its own records."""
    for distribution in _installed(environment):
        yield from (Path(str(distribution.locate_file(file))) for file in distribution.files or ())


def others(environment: Environment) -> Iterator[Distribution]:
    """All that is installed there beside flash-attn."""
    return (distribution for distribution in _all(environment) if not _is_flash_attn(distribution))


def targets(members: Iterable[str], environment: Environment) -> Iterator[Path]:
    """Where the members of a wheel are installed to (PEP 427: ``NAME.data/SCHEME/`` goes to the scheme's folder).

    Whether ``purelib`` or ``platlib``, the wheel's WHEEL file decides: both are named.
    """
    headers = environment.data / "include" / "site" / "python{}.{}".format(*environment.interpreter.version)
    schemes = {
        "purelib": environment.purelib,
        "platlib": environment.platlib,
        "scripts": environment.scripts,
        "data": environment.data,
        "headers": headers / DISTRIBUTION,
    }
    for member in members:
        top, *rest = PurePosixPath(member).parts
        if top.endswith(".data") and len(rest) > 1 and rest[0] in schemes:
            yield schemes[rest[0]].joinpath(*rest[1:])
        else:
            yield environment.platlib / member
            yield environment.purelib / member


def programs(archive: zipfile.ZipFile) -> list[str]:
    """The programs that an installer writes for a wheel's entry points, by name.

    :raises IntegrityError: when one has no plain name, or that of a program which is not flash-attn's to bring.
    """
    names: list[str] = []
    for member in archive.namelist():
        if member.endswith(f".dist-info/{_ENTRY_POINTS}"):
            names += _entry_points(archive.read(member).decode("utf-8", "replace"), archive.filename or "The wheel")
    return names


def _entry_points(text: str, wheel: str) -> Iterator[str]:
    """The names in the groups of programs, read as installers do: each line by itself, blanks around it ignored."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ").casefold()
        elif line and not line.startswith(("#", ";")) and group in _PROGRAM_GROUPS:
            program = line.partition("=")[0].strip()
            if not _PROGRAM.fullmatch(program) or program.casefold().startswith(_INSTALLERS):
                raise IntegrityError(
                    f"{Path(wheel).name} is refused: it brings a program {program!r}, which leads out of the folder of "
                    "programs or takes the name of an installer or of Python.",
                    hint="Nothing was changed. Take another wheel.",
                )
            yield program


def _require_replaceable(distribution: Distribution, environment: Environment) -> None:
    version, python = distribution.version, environment.executable
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        raise UsageError(
            f"flash-attn {version} in {environment.prefix} was installed by conda, whose records would go wrong.",
            hint=f"Remove it first: conda remove --prefix {environment.prefix} flash-attn",
        )
    if distribution.files is None:
        raise UsageError(
            f"flash-attn {version} in {environment.prefix} was not installed by pip or uv: nothing "
            "says which files are its own, so it could not be put back.",
            hint=f"Remove it first: {python} -m pip uninstall flash-attn",
        )


def _whole(path: Path, environment: Environment) -> Path:
    """The top-level package that a file belongs to; the file itself outside of packages."""
    for site in (environment.purelib, environment.platlib):
        if site in path.parents:
            top = path.relative_to(site).parts[0]
            return path if top == _CACHE else site / top
    return path


def _installed(environment: Environment) -> Iterator[Distribution]:
    return filter(_is_flash_attn, _all(environment))


def _is_flash_attn(distribution: Distribution) -> bool:
    return canonicalize_name(distribution.metadata["Name"] or "") == DISTRIBUTION


def _all(environment: Environment) -> Iterator[Distribution]:
    sites = dict.fromkeys((str(environment.platlib), str(environment.purelib)))
    return iter(distributions(path=list(sites)))
