"""What a document tells its reader to type works, or says why it cannot here."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from support.documents import DOCUMENTS, ROOT, document_script, name_of, read_page, run, unmarked

READMES = ("README.md", "README.RU.md")
"""Their commands are typed by newcomers, who have no project file: test_first_hour.py."""

RUN = [path for path in DOCUMENTS if name_of(path) not in READMES and document_script(read_page(path))]

FLASHDEPOT = """\
#!/bin/sh
"{python}" -m flashdepot "$@" || {{
  code=$?
  echo "exit code $code: flashdepot $*" >> "{failures}"
  exit $code
}}
"""


@pytest.fixture(scope="module")
def depot(tmp_path_factory: pytest.TempPathFactory, real_depot: Path, quick_library: Path) -> Path:
    """A copy of the depot that has the small library: the documents may do with it what they like."""
    copied = tmp_path_factory.mktemp("documents") / "depot"
    shutil.copytree(real_depot, copied, symlinks=True, ignore=shutil.ignore_patterns("toolchains", "locks", "tmp"))
    return copied


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of a project that asks for the small library, with the examples in it."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("target"))
    (folder / "flashdepot.toml").write_text('profile = "quick"\narch = [80, 90]\n')
    return folder


@pytest.fixture
def failures(tmp_path: Path) -> Path:
    """A file of the calls of flashdepot that failed: what fails within ``$(...)`` does not stop a shell."""
    return tmp_path / "failures.txt"


@pytest.fixture
def terminal(tmp_path: Path, depot: Path, failures: Path) -> dict[str, str]:
    """The environment of somebody who has flashdepot on the path, and no network."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    (programs / "flashdepot").write_text(FLASHDEPOT.format(python=sys.executable, failures=failures))
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "FLASHDEPOT_HOME": str(depot),
        "FLASHDEPOT_OFFLINE": "1",
        "PIP_NO_INDEX": "1",
        "UV_OFFLINE": "1",
        "CARGO_HOME": str(home / "cargo"),
        "CARGO_NET_OFFLINE": "true",
        **{f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }


@pytest.mark.nvcc
@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_the_commands_of_a_document_work_from_top_to_bottom(
    path: Path, project: Path, terminal: dict[str, str], failures: Path
) -> None:
    script = document_script(read_page(path))
    assert script is not None
    done = run(script, project, terminal)
    assert done.returncode == 0, done.stderr[-4000:]
    assert not failures.exists(), failures.read_text() + done.stderr[-4000:]
    if script.missing:
        pytest.skip(f"{script.blocks} blocks ran; others need {', '.join(script.missing)}, which this machine lacks")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_block_of_commands_runs_or_says_what_it_needs(path: Path) -> None:
    assert not unmarked(read_page(path))


@pytest.mark.nvcc
def test_the_json_that_is_shown_has_the_keys_of_the_real_one(flashdepot: Any, quick_library: Path) -> None:
    (shown,) = (fence for fence in read_page(ROOT / "docs/scripting.md").fences if fence.language == "json")
    real = flashdepot("get", "--profile", "quick", "--arch", "80,90")
    assert list(json.loads(shown.text)) == list(real)
    assert json.loads(shown.text)["units"].keys() == real["units"].keys()
