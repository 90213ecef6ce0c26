"""The programs that a wheel declares, in a grammar that every installer reads alike."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path, PurePosixPath

from flashdepot.errors import IntegrityError

_GROUP = re.compile(r"\[([A-Za-z0-9_][A-Za-z0-9_.-]*)\]")
_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_ENTRY = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9_.-]*) *= *{_DOTTED}:{_DOTTED} *")
_BLANK = re.compile(r" *|#[ -~]*")
_PROGRAMS = {"console_scripts", "gui_scripts"}
_INSTALLERS = ("pip", "easy_install", "python")
"""Installers write further programs for these names: ``pip3``, ``pip3.12``."""


def require_plain_entry_points(wheel: Path) -> None:
    """Refuse a wheel whose ``entry_points.txt`` installers may read differently.

    Installers use Python's configparser or one of their own: what ends a line, what continues one, and how much of a
    broken line counts differs (https://packaging.python.org/en/latest/specifications/entry-points/ leaves it open).

    :raises IntegrityError: for all but ASCII lines ``[group]``, ``name = module:object`` and ``# comment``.
    """
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            path = PurePosixPath(member)
            if path.name.casefold() == "entry_points.txt" and path.parent.name.casefold().endswith(".dist-info"):
                declared_programs(archive.read(member), wheel.name)


def declared_programs(data: bytes, wheel: str) -> list[str]:
    """The names in the groups of programs; :raises IntegrityError: for what is not plain."""
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
