"""The environment that Microsoft's compiler needs: how it is asked for, and what the answer says. Pure.

Visual Studio sets it up in its developer prompts by a batch file, ``VC/Auxiliary/Build/vcvarsall.bat``. Its arguments
and the variables it sets are those of Microsoft's page "Use the Microsoft C++ toolset from the command line".
"""

from __future__ import annotations

import ntpath
from collections.abc import Mapping
from pathlib import PureWindowsPath

import msgspec

from flashdepot.errors import MissingToolError

ARCHITECTURE = "x64"
MARKER = "flashdepot: the environment follows"
SCRIPT_NAME = "load.cmd"

_BATCH = "FLASHDEPOT_VCVARSALL"
_REQUIRED = ("VCTOOLSINSTALLDIR", "INCLUDE", "LIB", "PATH")
_SAVED = "__VSCMD_PREINIT_"
_PROMPT_PREFIXES = (
    "VSCMD_",
    "VCTOOLS",
    "VCINSTALL",
    "VCIDE",
    "VSINSTALL",
    "DEVENVDIR",
    "WINDOWSSDK",
    "UCRT",
    "UNIVERSALCRT",
)
_PROMPT_PATHS = ("PATH", "INCLUDE", "LIB", "LIBPATH")
_PROMPT = 'Open the "x64 Native Tools Command Prompt" or an ordinary one, and run the same command there.'


class MsvcToolset(msgspec.Struct, frozen=True):
    """One toolset of one installation: ``batch`` is its ``vcvarsall.bat``, ``version`` the name of its folder."""

    batch: str
    version: str

    @classmethod
    def of_compiler(cls, program: str) -> MsvcToolset:
        r"""The toolset that a ``cl`` belongs to, by its place: ``VC\Tools\MSVC\<version>\bin\Hostx64\x64\cl.exe``.

        :raises MissingToolError: for a ``cl`` in another place, whose environment nobody knows how to load.
        """
        path = PureWindowsPath(program)
        folders = [part.lower() for part in path.parts[-8:]]
        if len(folders) < 8 or folders[:3] != ["vc", "tools", "msvc"]:  # noqa: PLR2004  (as many as the pattern has)
            raise MissingToolError(
                rf"{program} is not in a folder of Visual Studio (VC\Tools\MSVC\...\cl.exe), so there is no "
                "vcvarsall.bat to load its environment with.",
                hint="Run the same command in the developer prompt of that compiler.",
            )
        return cls(str(path.parents[6] / "Auxiliary" / "Build" / "vcvarsall.bat"), path.parts[-5])


def load_script(toolset: MsvcToolset) -> str:
    """The text of a batch file that loads a toolset's environment and prints it, as UTF-8, after :data:`MARKER`.

    A file and not an argument of ``cmd``: quotes around a path with blanks survive in it. The path itself comes in a
    variable, which is Unicode in every country, while ``cmd`` reads files in the country's code page.
    """
    lines = (
        "@echo off",
        "chcp 65001 >nul",
        f'call "%{_BATCH}%" {ARCHITECTURE} -vcvars_ver={toolset.version}',
        "if errorlevel 1 exit /b 1",
        f"echo {MARKER}",
        "set",
        "exit /b 0",
    )
    return "".join(f"{line}\r\n" for line in lines)


def read_environment(output: str, toolset: MsvcToolset) -> dict[str, str]:
    """The variables in what :func:`load_script` printed, their names in capitals, as Windows does not tell them apart.

    :raises MissingToolError: when the batch file failed, or loaded less than a compiler needs.
    """
    before, marker, after = output.partition(MARKER)
    if not marker:
        raise _failure(before, toolset)
    pairs = (line.partition("=") for line in after.splitlines() if not line.startswith("="))
    found = {name.upper(): value for name, equals, value in pairs if equals and name != _BATCH}
    missing = [name for name in _REQUIRED if not found.get(name)]
    if missing:
        raise _failure(before, toolset, f"it set no {', '.join(missing)}")
    if (target := found.get("VSCMD_ARG_TGT_ARCH", ARCHITECTURE)) != ARCHITECTURE:
        raise _failure(before, toolset, f"it prepared for {target} and not for {ARCHITECTURE}")
    return found


def _failure(output: str, toolset: MsvcToolset, seen: str = "") -> MissingToolError:
    said = " ".join(line.strip() for line in output.splitlines() if line.strip())[:400]
    what = f"{toolset.batch} did not load the environment of toolset {toolset.version}"
    what += f": {seen}" if seen else ""
    what += f". It said: {said}" if said else "."
    if "too long" in said.lower():
        hint = "A variable is longer than the 8191 characters that cmd reads: shorten INCLUDE, LIB or LIBPATH."
    elif "vcvars_ver" in said or "toolset" in said.lower():
        hint = (
            f"Add that toolset in the Visual Studio Installer (MSVC {toolset.version}), or name another cl: NVCC_CCBIN"
        )
    else:
        hint = (
            'Repair the installation in the Visual Studio Installer ("Desktop development with C++", with a Windows '
            "SDK). " + _PROMPT
        )
    return MissingToolError(what, hint=hint)


def before_prompt(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what a developer prompt has added to it; names in capitals.

    The prompt itself keeps the earlier values under names of its own, so that loading another toolset does not pile
    one ``PATH`` upon the other until ``cmd`` says that its line is too long.
    """
    clean = {name.upper(): value for name, value in environment.items()}
    saved = {name: clean.get(_SAVED + name) for name in _PROMPT_PATHS}
    in_prompt = "VSCMD_VER" in clean
    kept = {name: value for name, value in clean.items() if not name.startswith((_SAVED, *_PROMPT_PREFIXES))}
    for name, value in saved.items():
        if value:
            kept[name] = value
        elif in_prompt and name != "PATH":
            kept.pop(name, None)
    return kept


def to_load_in(environment: Mapping[str, str], toolset: MsvcToolset) -> dict[str, str]:
    """The environment to run :func:`load_script` in: without a prompt's, and with the shortest ``PATH`` that works."""
    clean = before_prompt(environment)
    root = clean.get("SYSTEMROOT", r"C:\Windows")
    folders = (rf"{root}\System32", root, rf"{root}\System32\Wbem", rf"{root}\System32\WindowsPowerShell\v1.0")
    batch = toolset.batch.replace("%", "%%")  # call replaces variables once more
    return {**clean, "PATH": ";".join(folders), "VSCMD_SKIP_SENDTELEMETRY": "1", _BATCH: batch}


def merge(environment: Mapping[str, str], loaded: Mapping[str, str]) -> dict[str, str]:
    """What a loaded environment changes in one: its variables, and its ``PATH`` before that of the environment.

    A folder that both have stays where the loaded one has it.
    """
    clean = before_prompt(environment)
    folders: dict[str, str] = {}
    for folder in (*loaded["PATH"].split(";"), *clean.get("PATH", "").split(";")):
        if folder:
            folders.setdefault(ntpath.normcase(folder.rstrip("\\/")), folder)
    changed = {name: value for name, value in loaded.items() if clean.get(name) != value}
    return {**changed, "PATH": ";".join(folders.values())}


def prompt_compiler(environment: Mapping[str, str]) -> str | None:
    """The ``cl`` that a developer prompt has loaded; ``None`` outside of one, and in one for another architecture."""
    variables = {name.upper(): value for name, value in environment.items()}
    folder = variables.get("VCTOOLSINSTALLDIR")
    if not folder or prompt_problem(environment):
        return None
    return ntpath.normpath(ntpath.join(folder, "bin", "Hostx64", "x64", "cl.exe"))


def prompt_problem(environment: Mapping[str, str]) -> str:
    """Why a loaded developer prompt cannot compile these kernels; an empty string where there is no reason."""
    variables = {name.upper(): value for name, value in environment.items()}
    target, host = variables.get("VSCMD_ARG_TGT_ARCH", ARCHITECTURE), variables.get("VSCMD_ARG_HOST_ARCH", ARCHITECTURE)
    if target != ARCHITECTURE:
        return f"this developer prompt is for {target}, and CUDA compiles only for {ARCHITECTURE}"
    if host != ARCHITECTURE:
        return f"this developer prompt has the compilers of {host}, whose 4 GB of memory the kernels exceed"
    if variables.get("PROCESSOR_ARCHITEW6432") and variables.get("PROCESSOR_ARCHITECTURE", "").lower() == "x86":
        return "this shell or Python is a 32-bit program, and the compilers are not"
    return ""


def require_usable(environment: Mapping[str, str]) -> None:
    """:raises MissingToolError: in a developer prompt or a shell that cannot compile these kernels."""
    if problem := prompt_problem(environment):
        raise MissingToolError(f"Nothing can be compiled here: {problem}.", hint=_PROMPT)
