"""The scripts for Windows. The batch file runs under wine, with stand-ins for Python that write down their arguments."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from flashdepot.cli.app import app
from windows.wine import Wine, windows_path

SCRIPTS = Path(__file__).parents[2] / "scripts"
CMD = SCRIPTS / "build_flash_attn.cmd"
POWERSHELL = SCRIPTS / "build_flash_attention.ps1"

PYTHON = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }

int main(int argc, char **argv) {
  int i = argc > 1 && strcmp(argv[1], "-3") == 0 ? 2 : 1;
  if (argc > i + 1 && strcmp(argv[i], "-c") == 0) {
    if (strstr(argv[i + 1], "flashdepot")) return number("FD_IMPORT");
    if (!number("FD_OLD")) puts(_pgmptr);
    return 0;
  }
  FILE *log = fopen(getenv("FD_LOG"), "a");
  fprintf(log, "%s|", strrchr(_pgmptr, '\\') + 1);
  for (int k = 1; k < argc; k++) fprintf(log, "%s%s", argv[k], k + 1 < argc ? "|" : "\n");
  fclose(log);
  for (int k = i; k < argc && k < i + 3; k++) if (strcmp(argv[k], getenv("FD_FAILS")) == 0) return number("FD_STATUS");
  return 0;
}
"""
"""A python.exe that writes its arguments, parted by bars, to a log, and fails at the step that it is told to fail at."""


@pytest.fixture(scope="session")
def python_exe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("x86_64-w64-mingw32-gcc")
    if compiler is None:
        pytest.skip("needs x86_64-w64-mingw32-gcc (apt-get install gcc-mingw-w64-x86-64)")
    folder = tmp_path_factory.mktemp("python")
    (folder / "python.c").write_text(PYTHON)
    subprocess.run([compiler, "python.c", "-o", "python.exe"], cwd=folder, check=True)
    return folder / "python.exe"


@dataclass
class Machine:
    """A folder for a user, a checkout with the script in it, and programs on the PATH."""

    wine: Wine
    folder: Path
    python_exe: Path

    @property
    def calls(self) -> list[list[str]]:
        """The program and arguments of each call of Python, those that only ask it something left out."""
        log = self.folder / "log.txt"
        return [line.split("|") for line in log.read_text().splitlines()] if log.exists() else []

    def install(self, name: str) -> None:
        (self.folder / "programs").mkdir(parents=True, exist_ok=True)
        shutil.copy(self.python_exe, self.folder / "programs" / name)

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        checkout = self.folder / "a checkout (1)"
        (checkout / "scripts").mkdir(parents=True, exist_ok=True)
        shutil.copy(CMD, checkout / "scripts")
        work = self.folder / "my project"
        work.mkdir(exist_ok=True)
        settings = {"FD_IMPORT": "0", "FD_OLD": "0", "FD_FAILS": "nothing", "FD_STATUS": "0", **more}
        # A line as a user types it: cmd finds the script by a relative path with blanks.
        line = " ".join(['"..\\a checkout (1)\\scripts\\build_flash_attn.cmd"', *arguments])
        (work / "typed.cmd").write_text(f"@{line}\n", newline="\r\n")
        return self.wine.run(
            "cmd",
            "/c",
            "typed.cmd",
            cwd=work,
            WINEPATH=windows_path(self.folder / "programs"),
            FD_LOG=windows_path(self.folder / "log.txt"),
            **settings,
        )


@pytest.fixture
def machine(wine: Wine, python_exe: Path, tmp_path: Path) -> Machine:
    return Machine(wine, tmp_path / "a user", python_exe)


def test_it_detects_gets_and_verifies_in_folders_with_blanks(machine: Machine) -> None:
    machine.install("python.exe")
    done = machine.run("--profile", "quick", "--arch", '"80,90"')
    assert done.returncode == 0, done.stdout + done.stderr
    out = windows_path(machine.folder / "my project" / "prebuilt")
    assert machine.calls == [
        ["python.exe", "-m", "flashdepot", "doctor", "build"],
        ["python.exe", "-m", "flashdepot", "get", "--out", out, "--profile", "quick", "--arch", "80,90"],
        ["python.exe", "-m", "flashdepot", "check", rf"{out}\lib\shared\flashattention.dll"],
    ]
    assert f'The library is in "{out}".' in done.stdout


def test_the_folder_can_be_named(machine: Machine) -> None:
    machine.install("python.exe")
    assert machine.run("-Out", '"..\\the libs"', "--profile", "quick").returncode == 0
    out = windows_path(machine.folder / "the libs")
    assert machine.calls[1] == ["python.exe", "-m", "flashdepot", "get", "--out", out, "--profile", "quick"]
    assert machine.run("-Out").returncode == 2


def test_the_launcher_comes_before_what_is_on_the_path(machine: Machine) -> None:
    machine.install("py.exe")
    machine.install("python.exe")
    assert machine.run().returncode == 0
    assert machine.calls[0] == ["py.exe", "-m", "flashdepot", "doctor", "build"]


@pytest.mark.parametrize("programs", [(), ("python.exe",)], ids=["no Python", "an old Python"])
def test_without_a_recent_python_it_names_what_to_install(machine: Machine, programs: tuple[str, ...]) -> None:
    for name in programs:
        machine.install(name)
    done = machine.run(FD_OLD="1")
    assert done.returncode == 3
    assert "no Python 3.10 or newer was found" in done.stderr
    assert "winget install Python.Python.3.12" in done.stderr
    assert machine.calls == []


@pytest.mark.parametrize(("step", "status"), [("doctor", 4), ("get", 5), ("check", 6)])
def test_the_exit_code_of_a_failing_step_is_passed_on(machine: Machine, step: str, status: int) -> None:
    machine.install("python.exe")
    done = machine.run(FD_FAILS=step, FD_STATUS=str(status))
    assert done.returncode == status
    assert f"exit code {status}" in done.stderr
    assert machine.calls[-1][1:4] == ["-m", "flashdepot", step]


def test_a_machine_without_a_gpu_cannot_tell_whether_it_fits_and_has_its_library(machine: Machine) -> None:
    machine.install("python.exe")
    done = machine.run(FD_FAILS="check", FD_STATUS="3")
    assert done.returncode == 0, done.stderr
    assert "The library is in " in done.stdout


def test_without_flashdepot_it_is_installed_from_the_checkout(machine: Machine) -> None:
    machine.install("python.exe")
    done = machine.run(FD_IMPORT="1", FD_FAILS="venv", FD_STATUS="1")
    assert done.returncode == 3
    assert machine.calls[0][1:3] == ["-m", "venv"]
    assert machine.calls[0][3].endswith(r"a checkout (1)\scripts\..\.venv")
    assert "could not be installed from" in done.stderr


@pytest.mark.parametrize("word", ["-help", "/?"])
def test_help_is_printed_and_nothing_else_done(machine: Machine, word: str) -> None:
    machine.install("python.exe")
    done = machine.run(word)
    assert done.returncode == 0
    assert "build_flash_attn.cmd [-Out DIR]" in done.stdout
    assert machine.calls == []


def test_batch_files_end_their_lines_as_cmd_wants_them() -> None:
    text = CMD.read_bytes()
    assert text.count(b"\r\n") == text.count(b"\n") > 0
    assert text.isascii()


@pytest.mark.parametrize("script", [CMD, POWERSHELL], ids=lambda path: path.name)
def test_the_commands_that_a_script_calls_exist(script: Path) -> None:
    called = re.findall(r"-m flashdepot (\w+)(.*)", script.read_text())
    assert [name for name, _ in called] == ["doctor", "get", "check"]
    for name, rest in called:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known
