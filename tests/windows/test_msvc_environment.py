from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.errors import MissingToolError
from flashdepot.model.host import HostCompiler
from flashdepot.model.target import Version
from flashdepot.toolchain.msvc import environment_for, load_environment
from flashdepot.toolchain.msvc_environment import (
    MARKER,
    MsvcToolset,
    before_prompt,
    load_script,
    merge,
    read_environment,
    to_load_in,
)
from windows.wine import Wine, windows_path

VC = r"C:\Program Files (x86)\Microsoft Visual Studio\2022\BuildTools\VC"
TOOLSET = MsvcToolset(rf"{VC}\Auxiliary\Build\vcvarsall.bat", "14.44.35207")
BANNER = (
    "**********************************************************************\r\n"
    "** Visual Studio 2022 Developer Command Prompt v17.14.2\r\n"
    "**********************************************************************\r\n"
    "[vcvarsall.bat] Environment initialized for: 'x64'\r\n"
)
LOADED = {
    "INCLUDE": rf"{VC}\Tools\MSVC\14.44.35207\include;C:\Program Files (x86)\Windows Kits\10\include\10.0.26100.0\ucrt",
    "LIB": rf"{VC}\Tools\MSVC\14.44.35207\lib\x64",
    "Path": rf"{VC}\Tools\MSVC\14.44.35207\bin\Hostx64\x64;C:\Windows\System32;C:\Windows",
    "VCToolsInstallDir": rf"{VC}\Tools\MSVC\14.44.35207" + "\\",
    "VSCMD_ARG_TGT_ARCH": "x64",
    "__DOTNET_PREFERRED_BITNESS": "64",
    "USERPROFILE": r"C:\Users\Jürgen Müller",
    "EQUATION": "a=b=c ",
}


def printed(**changes: str | None) -> str:
    variables = {**LOADED, **changes}
    lines = [f"{name}={value}" for name, value in variables.items() if value is not None]
    return "\r\n".join([BANNER + MARKER, "=C:=C:\\work", *lines, ""])


def test_what_follows_the_marker_is_read_with_names_in_capitals() -> None:
    found = read_environment(printed(), TOOLSET)
    assert found["VCTOOLSINSTALLDIR"] == LOADED["VCToolsInstallDir"]
    assert found["PATH"] == LOADED["Path"]
    assert found["USERPROFILE"] == r"C:\Users\Jürgen Müller"
    assert found["EQUATION"] == "a=b=c "
    assert not any("[VCVARSALL" in name or name.startswith("=") for name in found)


@pytest.mark.parametrize(
    ("output", "seen", "mend"),
    [
        ("The input line is too long.\r\nThe syntax of the command is incorrect.\r\n", "too long", "8191 characters"),
        (
            "[ERROR:vcvars.bat] Toolset directory for version '14.44.35207' was not found.\r\n",
            "Toolset directory for version",
            "Add that toolset",
        ),
        ("Das System kann den angegebenen Pfad nicht finden.\r\n", "Das System kann", "Repair the installation"),
        ("", "did not load the environment of toolset 14.44.35207", "Repair the installation"),
        (printed(INCLUDE=None, LIB=""), "it set no INCLUDE, LIB", "with a Windows SDK"),
        (printed(VSCMD_ARG_TGT_ARCH="x86"), "it prepared for x86 and not for x64", "Repair"),
    ],
)
def test_a_failed_load_says_what_was_seen_and_what_mends_it(output: str, seen: str, mend: str) -> None:
    with pytest.raises(MissingToolError) as caught:
        read_environment(output, TOOLSET)
    assert seen in caught.value.message
    assert mend in caught.value.hint


def test_the_loaded_path_comes_first_and_no_folder_twice() -> None:
    environment = {"Path": r"C:\windows\system32;C:\Python312;C:\Program Files\Git\cmd;", "TEMP": r"C:\t"}
    changed = merge(environment, read_environment(printed(), TOOLSET))
    assert changed["PATH"].split(";") == [
        rf"{VC}\Tools\MSVC\14.44.35207\bin\Hostx64\x64",
        r"C:\Windows\System32",
        r"C:\Windows",
        r"C:\Python312",
        r"C:\Program Files\Git\cmd",
    ]
    assert "TEMP" not in changed


PROMPT = {
    "VSCMD_VER": "16.11.42",
    "VSCMD_ARG_TGT_ARCH": "x64",
    "VSINSTALLDIR": r"C:\VS2019",
    "VCToolsInstallDir": r"C:\VS2019\VC\Tools\MSVC\14.29.30133",
    "WindowsSDKVersion": "10.0.19041.0",
    "INCLUDE": r"C:\VS2019\include",
    "LIB": r"C:\VS2019\lib;C:\mine",
    "__VSCMD_PREINIT_LIB": r"C:\mine",
    "Path": r"C:\VS2019\bin;C:\Python312",
    "__VSCMD_PREINIT_PATH": r"C:\Python312",
    "CUDA_PATH": r"C:\CUDA",
}


def test_another_toolset_is_loaded_as_if_no_prompt_had_been_opened() -> None:
    assert before_prompt(PROMPT) == {"LIB": r"C:\mine", "PATH": r"C:\Python312", "CUDA_PATH": r"C:\CUDA"}
    assert before_prompt({"INCLUDE": r"C:\mine", "Path": "p"}) == {"INCLUDE": r"C:\mine", "PATH": "p"}


def test_the_batch_file_runs_with_a_short_path_however_long_the_users_is() -> None:
    environment = to_load_in(
        {"PATH": ";".join(rf"C:\tools\{i}" for i in range(2000)), "SystemRoot": r"D:\Windows"}, TOOLSET
    )
    assert environment["PATH"].startswith(r"D:\Windows\System32;D:\Windows;")
    assert len(environment["PATH"]) < 200


def test_a_percent_sign_in_the_folder_survives_the_call() -> None:
    changed = to_load_in({}, MsvcToolset(r"C:\100%\vcvarsall.bat", "14.44.35207"))
    assert r"C:\100%%\vcvarsall.bat" in changed.values()


def test_an_open_prompt_with_the_chosen_compiler_is_left_as_it_is() -> None:
    cxx = HostCompiler("cl", r"c:\vs2019\VC\Tools\MSVC\14.29.30133\bin\Hostx64\x64\CL.exe", Version("19.29.30154"))
    assert environment_for(cxx, PROMPT) == {}
    assert environment_for(HostCompiler("g++", "/usr/bin/g++", Version("12.2")), {"VSCMD_ARG_TGT_ARCH": "x86"}) == {}


def test_a_missing_batch_file_is_named(tmp_path: Path) -> None:
    cxx = HostCompiler("cl", str(tmp_path / "VC/Tools/MSVC/14.29.30133/bin/Hostx64/x64/cl.exe"), Version("19.29"))
    with pytest.raises(MissingToolError, match=r"vcvarsall\.bat is not there") as caught:
        environment_for(cxx, {})
    assert "Visual Studio Installer" in caught.value.hint


VCVARSALL = """@echo off
if not "%*"=="x64 -vcvars_ver=14.44.35207" (
  echo [ERROR:vcvars.bat] Toolset directory for version '%*' was not found.
  exit /b 1
)
echo [vcvarsall.bat] Environment initialized for: '%1'
set "VSCMD_ARG_TGT_ARCH=%1"
set "VCToolsInstallDir=C:\\VS (x86)\\VC\\Tools\\MSVC\\14.44.35207\\"
set "INCLUDE=C:\\VS (x86)\\include & more;%INCLUDE%"
set "LIB=C:\\VS (x86)\\lib"
set "PATH=C:\\VS (x86)\\bin;%PATH%"
"""


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """A vcvarsall.bat in a folder with blanks, brackets and letters of another code page."""
    path = tmp_path / "Program Files (x86)" / "Größe & Ж" / "VC" / "Auxiliary" / "Build" / "vcvarsall.bat"
    path.parent.mkdir(parents=True)
    path.write_text(VCVARSALL, newline="\r\n")
    return path


def test_cmd_loads_the_environment_of_a_toolset_in_any_folder(wine: Wine, batch: Path) -> None:
    toolset = MsvcToolset(windows_path(batch), "14.44.35207")
    environment = wine.environment(INCLUDE=r"C:\mine", WINEPATH=r"C:\Python312")
    changed = load_environment(toolset, environment, wine.command("cmd"))
    assert changed["INCLUDE"] == r"C:\VS (x86)\include & more;C:\mine"
    assert changed["LIB"] == r"C:\VS (x86)\lib"
    assert changed["PATH"].startswith(r"C:\VS (x86)\bin;")
    assert "HOME" not in changed


def test_what_the_batch_file_complains_of_is_passed_on(wine: Wine, batch: Path) -> None:
    toolset = MsvcToolset(windows_path(batch), "14.29.30133")
    with pytest.raises(MissingToolError, match="Toolset directory for version") as caught:
        load_environment(toolset, wine.environment(), wine.command("cmd"))
    assert "14.29.30133" in caught.value.hint


def test_the_script_ends_its_lines_as_cmd_wants_them() -> None:
    text = load_script(TOOLSET)
    assert text.count("\r\n") == text.count("\n")
    assert "x64 -vcvars_ver=14.44.35207" in text
