"""Code that waits for an interpreter that flashdepot starts: it must not run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot.process.run import run_python
from support import forge
from support.tools import flashdepot_in, posix, run_program
from support.venvs import Venv, make_environment

MODULES = ("json", "sysconfig", "platform", "site", "sitecustomize", "usercustomize", "torch", "pip", "flash_attn")
"""What a Python, or our script, imports: a file of such a name is found first in the current folder."""

needs_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root makes files of other users")


class Trap:
    """Modules that leave a mark when they are run."""

    def __init__(self, root: Path) -> None:
        self.mark = root / "it-ran"
        self._code = f"open({str(self.mark)!r}, 'a').write(__file__ + '\\n')\n"

    def set_in(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name in MODULES:
            (folder / f"{name}.py").write_text(self._code)
        return folder

    @property
    def caught(self) -> str:
        return self.mark.read_text() if self.mark.exists() else ""


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments") / "venv"
    make_environment(folder, with_pip=False)
    return folder


COMMANDS = {
    "host": ["host", "--json"],
    "doctor": ["doctor", "install"],
    "check": ["check", "WHEEL"],
    "install": ["install", "--wheel", "WHEEL"],
    "install --dry-run": ["install", "--wheel", "WHEEL", "--dry-run"],
    "link wheel": ["link", "wheel", "WHEEL"],
    "resolve": ["resolve"],
    "verify": ["verify"],
    "bench": ["bench", "--lengths", "1024"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_modules_in_the_current_folder_in_pythonpath_and_in_the_users_site_do_not_run(
    trap, venv, tmp_path, command
) -> None:
    """The folder is one that somebody downloaded a wheel into."""
    downloads = trap.set_in(tmp_path / "downloads")
    wheel = forge.wheel(downloads, {"flash_attn/__init__.py": b""}, tag="py3-none-any")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    words = [str(wheel) if word == "WHEEL" else word for word in COMMANDS[command]]
    flashdepot_in(
        downloads,
        *words,
        "--python",
        str(venv),
        PYTHONPATH=str(trap.set_in(tmp_path / "path")),
        PYTHONUSERBASE=str(trap.set_in(tmp_path / "user" / "lib" / version / "site-packages").parents[2]),
        PYTHONSTARTUP=str(downloads / "json.py"),
        PYTHONHOME=str(tmp_path / "nowhere"),
    )
    assert trap.caught == ""


@posix("folder of a user's own packages that HOME names")
def test_the_users_site_of_an_interpreter_outside_of_an_environment_does_not_run(trap, tmp_path) -> None:
    """A virtual environment has no such folder; the interpreter that it was made of has."""
    python = str(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"))
    home = {**os.environ, "HOME": str(tmp_path / "home")}
    ask = [python, "-c", "import site; print(site.getusersitepackages())"]
    trap.set_in(Path(run_program(ask, env=home).strip()))
    flashdepot_in(tmp_path, "host", "--python", python, HOME=home["HOME"])
    assert trap.caught == ""
    subprocess.run([python, "-c", ""], env=home, check=False)
    assert "usercustomize.py" in trap.caught, "the trap is where Python looks"


def test_the_trap_catches_an_interpreter_that_is_not_isolated(trap, venv, tmp_path) -> None:
    folder = trap.set_in(tmp_path / "downloads")
    subprocess.run([Venv(venv).python, "-c", "import json"], cwd=folder, check=False)
    assert "json.py" in trap.caught


def test_what_an_interpreter_starts_gets_no_python_variables_and_the_current_folder_is_not_its_own(
    venv, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PythonStartup"):
        monkeypatch.setenv(name, str(tmp_path))
    code = "import os; print(sorted(v for v in os.environ if v.upper().startswith('PYTHON')), os.getcwd())"
    done = run_python(Venv(venv).python, ["-c", code], timeout=60)
    assert done.stdout == f"['PYTHONDONTWRITEBYTECODE'] {Venv(venv).python.parent}\n"


def test_an_empty_part_of_the_library_path_does_not_mean_the_current_folder(trap, venv, tmp_path, monkeypatch) -> None:
    """`export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/opt/lib` leaves one where there was no such variable."""
    source = 'extern int puts(const char *); __attribute__((constructor)) void f(void) { puts("planted"); }'
    planted = forge.shared_library(tmp_path, source, name="libplanted.so")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/nowhere")
    code = f"import ctypes; ctypes.CDLL({planted.name!r})"
    assert "planted" in run_program([sys.executable, "-c", code])
    done = run_python(Venv(venv).python, ["-c", code], timeout=60)
    assert done.status != 0
    assert "planted" not in done.stdout


def planted_venv(folder: Path, trap: Trap) -> Path:
    """An environment whose interpreter leaves a mark when it is started."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho started >> {trap.mark}\n")
    python.chmod(0o755)
    return python


@needs_root
@pytest.mark.parametrize("what", [".venv", ".venv/bin", ".venv/bin/python", ".venv/pyvenv.cfg"])
@pytest.mark.parametrize("command", [["host"], ["doctor", "install"], ["resolve"], ["install"], ["verify"]])
def test_the_venv_of_another_user_above_is_not_started(trap, tmp_path, what, command) -> None:
    shared = tmp_path / "shared"
    python = planted_venv(shared, trap)
    (python.parents[1] / "pyvenv.cfg").touch()
    os.chown(shared / what, 65_000, -1)
    (shared / "mine").mkdir()
    done = flashdepot_in(shared / "mine", *command)
    assert trap.caught == ""
    said = done.stdout + done.stderr
    if command != ["resolve"]:
        assert f"{shared / what} is not trusted, because it belongs to user 65000" in said
        assert f"--python {shared / '.venv'}" in said


@posix("modes of files")
def test_a_venv_that_everybody_may_write_to_is_not_started(trap, tmp_path) -> None:
    python = planted_venv(tmp_path / "project", trap)
    python.parent.chmod(0o777)
    done = flashdepot_in(tmp_path / "project", "host")
    assert trap.caught == ""
    assert f"{python.parent} is not trusted, because everybody may write to it" in done.stdout


@needs_root
def test_a_venv_that_is_named_is_trusted(trap, tmp_path) -> None:
    python = planted_venv(tmp_path / "shared", trap)
    os.chown(python.parents[1], 65_000, -1)
    flashdepot_in(tmp_path / "shared", "host", "--python", ".venv")
    assert trap.caught
