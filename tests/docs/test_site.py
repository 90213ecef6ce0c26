"""The site is built from the documents, and every link in it is resolved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot import api
from support.documents import DOCUMENTS, ROOT, name_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder, built without a warning."""
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install --group docs")
    site = tmp_path_factory.mktemp("documents") / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-c", "docs", ".", str(site)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # those of Sphinx's own dependencies are theirs
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site


def test_every_document_is_a_page_of_the_site(site: Path) -> None:
    pages = {name_of(path) for path in DOCUMENTS}
    assert not {name for name in pages if not (site / name).with_suffix(".html").is_file()}
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
    assert 'href="gpu.html"' in (site / "docs/index.html").read_text()


def test_the_page_of_the_api_has_every_public_name_with_what_its_docstring_says(site: Path) -> None:
    html = (site / "docs/api.html").read_text()
    assert not {name for name in api.__all__ if f'id="flashdepot.api.{name}"' not in html}
    assert "when a compiler refuses; its hint says what its log shows" in html  # of get's docstring
    page = (ROOT / "docs/api.md").read_text()
    assert not {name for name in api.__all__ if f"`{name}`" not in page}
