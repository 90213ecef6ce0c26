"""What a document tells its reader to type works, or says why it cannot here, and the site is built from all of them."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from flashdepot import api
from support.depots import COMPILERS, copy_depot
from support.documents import DOCUMENTS, ROOT, document_script, name_of, read_page, run, unmarked
from support.tools import run_program

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
    kept = tuple(path.name for path in real_depot.iterdir() if path.name not in COMPILERS)
    return copy_depot(real_depot, tmp_path_factory.mktemp("documents") / "depot", kept)


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
def test_the_commands_of_a_document_work_from_top_to_bottom(path, project, terminal, failures) -> None:
    script = document_script(read_page(path))
    assert script is not None
    done = run(script, project, terminal)
    assert done.returncode == 0, done.stderr[-4000:]
    assert not failures.exists(), failures.read_text() + done.stderr[-4000:]
    if script.missing:
        pytest.skip(f"{script.blocks} blocks ran; others need {', '.join(script.missing)}, which this machine lacks")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_block_of_commands_runs_or_says_what_it_needs(path) -> None:
    assert not unmarked(read_page(path))


@pytest.mark.nvcc
def test_the_json_that_is_shown_has_the_keys_of_the_real_one(flashdepot, quick_library) -> None:
    (shown,) = (fence for fence in read_page(ROOT / "docs/scripting.md").fences if fence.language == "json")
    real = flashdepot("get", "--profile", "quick", "--arch", "80,90")
    assert list(json.loads(shown.text)) == list(real)
    assert json.loads(shown.text)["units"].keys() == real["units"].keys()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder, built without a warning."""
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install --group docs")
    site = tmp_path_factory.mktemp("documents") / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-c", "docs", ".", str(site)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # those of Sphinx's own dependencies are theirs
    run_program(command, cwd=ROOT, env=environment)
    return site


def test_every_document_is_a_page_of_the_site(site) -> None:
    pages = {name_of(path) for path in DOCUMENTS}
    assert not {name for name in pages if not (site / name).with_suffix(".html").is_file()}
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
    assert 'href="gpu.html"' in (site / "docs/index.html").read_text()


def test_the_page_of_the_api_has_every_public_name_with_what_its_docstring_says(site) -> None:
    html = (site / "docs/api.html").read_text()
    assert not {name for name in api.__all__ if f'id="flashdepot.api.{name}"' not in html}
    assert "when a compiler refuses; its hint says what its log shows" in html  # of get's docstring
    page = (ROOT / "docs/api.md").read_text()
    assert not {name for name in api.__all__ if f"`{name}`" not in page}
