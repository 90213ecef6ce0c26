"""Microsoft's C++ compilers of the host: the developer prompt's, and those that Visual Studio's installer knows."""

from __future__ import annotations

import json
import ntpath
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from flashdepot.errors import FlashdepotError
from flashdepot.model.host import HostCompiler
from flashdepot.model.target import Version
from flashdepot.system.process import run

_COMPONENT = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
_QUERY = ("-all", "-products", "*", "-requires", _COMPONENT, "-format", "json", "-utf8")


def find_msvc(environment: Mapping[str, str] = os.environ) -> tuple[HostCompiler, ...]:
    """Every ``cl`` for x64, best first: that of ``NVCC_CCBIN``, that of this developer prompt, then newest first.

    All toolsets of all installations that ``vswhere`` knows are listed, Build Tools as well.
    """
    installed = [program for folder in _installed(environment) for program in _programs(Path(folder))]
    return rank_installations(preferred(environment), map(str, installed), _banner)


def preferred(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The programs that come before all others: the one of ``NVCC_CCBIN`` (itself, or its folder), the prompt's."""
    named = environment.get("NVCC_CCBIN", "")
    if named and not ntpath.basename(named).lower().startswith("cl"):
        named = ntpath.join(named, "cl.exe")
    tools = environment.get("VCToolsInstallDir", "")
    prompts = ntpath.normpath(ntpath.join(tools, "bin", "Hostx64", "x64", "cl.exe")) if tools else ""
    return tuple(program for program in (named, prompts) if program)


def rank_installations(
    first: Sequence[str], installed: Iterable[str], banner: Callable[[str], str | None]
) -> tuple[HostCompiler, ...]:
    """Compilers from programs: ``first`` in their order, the installed ones newest first, none twice.

    :param banner: what a program prints, or ``None`` when it cannot be run.
    """
    found: dict[str, HostCompiler] = {}

    def add(programs: Iterable[str]) -> list[HostCompiler]:
        new = []
        for program in programs:
            if (key := ntpath.normcase(program)) not in found and (version := banner_version(banner(program) or "")):
                found[key] = HostCompiler("cl", program, version)
                new.append(found[key])
        return new

    ordered = add(first)
    return (*ordered, *sorted(add(installed), key=lambda compiler: compiler.version, reverse=True))


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


def _installed(environment: Mapping[str, str]) -> Sequence[str]:
    programs = environment.get("ProgramFiles(x86)", r"C:\Program Files (x86)")
    vswhere = Path(programs) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if not vswhere.is_file():
        return ()
    try:
        return installations(run([str(vswhere), *_QUERY], timeout=30, encoding="utf-8").stdout)
    except FlashdepotError:
        return ()


def _programs(folder: Path) -> list[Path]:
    return sorted(folder.glob("VC/Tools/MSVC/*/bin/Hostx64/x64/cl.exe"), reverse=True)


def _banner(program: str) -> str | None:
    try:
        return run([program], timeout=30).output
    except FlashdepotError:
        return None
