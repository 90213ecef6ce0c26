from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.tools import PREFIX_VARIABLE, Wine, tool


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Wine:
    """Wine with a Windows folder of its own, made on first use; ``FLASHDEPOT_TEST_WINEPREFIX`` names one to keep."""
    program = tool("wine")
    kept = os.environ.get(PREFIX_VARIABLE)
    prefix = Path(kept) if kept else tmp_path_factory.mktemp("wine") / "prefix"
    found = Wine(program, prefix)
    done = subprocess.run(
        found.command("cmd", "/c", "exit 0"), env=found.environment(), capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"wine does not start here: {done.stderr.decode(errors='replace')[-300:]}")
    return found
