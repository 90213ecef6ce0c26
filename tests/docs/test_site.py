"""The site is built from the documents, and every link in it is resolved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.documents import DOCUMENTS, ROOT, name_of


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install --group docs")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-c", "docs", ".", str(site)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # those of Sphinx's own dependencies are theirs
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {name_of(path) for path in DOCUMENTS}
    assert not {name for name in pages if not (site / name).with_suffix(".html").is_file()}
    assert 'url=docs/index.html"' in (site / "index.html").read_text()
    assert 'href="gpu.html"' in (site / "docs/index.html").read_text()
