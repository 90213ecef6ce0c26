from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flashdepot

_SOURCE = str(Path(flashdepot.__file__).parents[1])
_START = f"import sys; sys.path.insert(0, {_SOURCE!r}); from flashdepot.cli.app import run; sys.exit(run())"

Flashdepot = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def flashdepot_in(tmp_path: Path) -> Flashdepot:
    """Run the installed program's code in a folder, with more variables; it is not itself open to what lies there."""

    def start(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if k not in {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"}}
        return subprocess.run(
            [sys.executable, "-I", "-B", "-c", _START, *words],
            cwd=folder,
            env={**kept, "FLASHDEPOT_HOME": str(tmp_path / "depot"), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return start
