"""Microsoft's C++ compiler: where Visual Studio's installer says it is, and its version."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from flashdepot.errors import FlashdepotError
from flashdepot.model.host import HostCompiler
from flashdepot.model.target import Version
from flashdepot.system.process import run

_COMPONENT = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
_QUERY = ("-all", "-products", "*", "-requires", _COMPONENT, "-format", "json", "-utf8")


def find_msvc() -> tuple[HostCompiler, ...]:
    """Every ``cl`` for x64 that Visual Studio's ``vswhere`` knows, newest first."""
    programs = os.environ.get("ProgramFiles(x86)", r"C:\Program Files (x86)")  # noqa: SIM112  (Windows spells it so)
    vswhere = Path(programs) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if not vswhere.is_file():
        return ()
    try:
        folders = installations(run([str(vswhere), *_QUERY], timeout=30).stdout)
    except FlashdepotError:
        return ()
    found = [compiler for folder in folders for program in _programs(Path(folder)) if (compiler := _identify(program))]
    return tuple(sorted(found, key=lambda c: c.version, reverse=True))


def installations(answer: str) -> Sequence[str]:
    """The installation folders in the JSON that ``vswhere -format json`` prints; none in anything else."""
    try:
        return [str(entry["installationPath"]) for entry in json.loads(answer) if "installationPath" in entry]
    except (ValueError, TypeError):
        return []


def banner_version(banner: str) -> Version | None:
    """The version that ``cl`` prints before its work, in whichever language: ``19.44.35211``.

    Its first two parts are ``_MSC_VER``: 19.44 is 1944.
    """
    match = re.search(r"\b(\d{2}\.\d{2}\.\d{4,5})(?:\.\d+)?\b", banner)
    return Version.parse(match[1]) if match else None


def _programs(folder: Path) -> list[Path]:
    return sorted(folder.glob("VC/Tools/MSVC/*/bin/Hostx64/x64/cl.exe"), reverse=True)


def _identify(program: Path) -> HostCompiler | None:
    try:
        version = banner_version(run([str(program)], timeout=30).output)
    except FlashdepotError:
        return None
    return HostCompiler("cl", str(program), version) if version else None
