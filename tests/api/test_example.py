"""The example of the API, run as its reader runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot import __version__
from support.documents import ROOT

pytestmark = pytest.mark.nvcc


def test_the_example_links_the_stored_library_and_prints_what_it_holds(real_depot: Path, quick_library: Path) -> None:
    example = ROOT / "examples/api_get_link_call.py"
    environment = {**os.environ, "FLASHDEPOT_HOME": str(real_depot), "FLASHDEPOT_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(example), "80,90"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    built, *families = done.stdout.splitlines()
    assert built.startswith(f"built by flashdepot {__version__} with CUDA ")
    assert families[-1].startswith("fa2 ")
    assert families[-1].endswith("SASS for sm_80 sm_90")
