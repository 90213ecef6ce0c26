"""Four newcomers in their first hour: a clone, the README's first command, then the section that is theirs.

Nobody has a flashdepot.toml, and the commands are typed as they stand there. The README's second command runs these
tests.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.depots import copy_depot
from support.documents import ROOT, Page, document_script, parse_page, run
from support.tools import run_program

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.network,
    pytest.mark.skipif("FLASHDEPOT_OFFLINE" in os.environ, reason="FLASHDEPOT_OFFLINE forbids the network"),
]

README = (ROOT / "README.md").read_text(encoding="utf-8")
BEGINNING = "Start"
AUTHORS = ["You build C or C++", "You build Rust, or candle"]
IMPORTER = "You want `import flash_attn` to work"
TEAM = "You run a team or a cluster"
IN_TROUBLE = "You are staring at an error"


def section(title: str) -> Page:
    (text,) = (part for part in README.split("\n## ") if part.startswith(f"{title}\n"))
    return parse_page(ROOT / "README.md", f"## {text}")


def typed(page: Page, folder: Path, environment: dict[str, str], *having: str) -> subprocess.CompletedProcess[str]:
    script = document_script(page, having=frozenset(having))
    assert script is not None
    if script.missing:
        pytest.skip(f"this machine lacks {', '.join(script.missing)}")
    return run(script, folder, environment, limit=300)


@pytest.fixture(scope="module")
def depot(tmp_path_factory: pytest.TempPathFactory, real_depot: Path, quick_library: Path) -> Path:
    """A copy of the depot that has the small library: a first build of it takes minutes."""
    return copy_depot(real_depot, tmp_path_factory.mktemp("newcomer") / "depot")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What somebody has who cloned the project just now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("this is not a clone")
    folder = tmp_path_factory.mktemp("newcomer") / "flashdepot"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def begun(clone: Path, depot: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has typed the first command, and then activated .venv."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    home = tmp_path_factory.mktemp("newcomer") / "home"
    home.mkdir()
    environment = {
        **kept,
        "HOME": str(home),
        "FLASHDEPOT_HOME": str(depot),
        "CARGO_NET_OFFLINE": "true",
        "CARGO_HOME": str(home / "cargo"),
    }
    first, *_ = section(BEGINNING).fences
    said = run_program(["bash", "-c", first.text], cwd=clone, env=environment, timeout=600)
    assert Path(said.splitlines()[-1], "lib").is_dir(), "the last line is the library's folder"
    programs = clone / ".venv" / "bin"
    return {**environment, "VIRTUAL_ENV": str(clone / ".venv"), "PATH": f"{programs}{os.pathsep}{kept['PATH']}"}


@pytest.fixture
def project(tmp_path: Path, clone: Path) -> Path:
    """A folder of the newcomer's own, next to the environment."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".venv").symlink_to(clone / ".venv")
    return folder


@pytest.mark.parametrize("title", [*AUTHORS, TEAM, IN_TROUBLE])
def test_each_command_of_a_section_works(title, project, begun) -> None:
    done = typed(section(title), project, {**begun, "FLASHDEPOT_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    assert "error" not in done.stderr, done.stderr[-4000:]


def test_somebody_without_torch_gets_the_command_that_installs_it(project, begun) -> None:
    done = typed(section(IMPORTER), project, begun, "network")
    assert done.returncode == 3
    assert f"{project}/.venv/bin/python -m pip install --upgrade torch" in done.stderr


def test_somebody_whose_pip_fails_gets_the_cause(project, begun) -> None:
    done = typed(section(IN_TROUBLE), project, begun, "network")
    assert "No module named '" in done.stdout  # torch; packaging, where an old pip isolates nothing
    assert "pip install flash-attn --no-build-isolation" in done.stdout


def test_every_section_with_commands_has_its_newcomer() -> None:
    with_commands = {part.partition("\n")[0] for part in README.split("\n## ")[1:] if "```sh" in part}
    assert with_commands == {BEGINNING, IMPORTER, *AUTHORS, TEAM, IN_TROUBLE}
