"""What ``flashdepot depot gc`` says when it frees nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_it_says_why_nothing_was_freed_and_what_frees_more(tmp_path: Path) -> None:
    words = ["depot", "gc", "--older-than", "0", "--yes", "--depot", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "flashdepot", *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0
    assert "what was used in the last 0 days or the last hour" in done.stderr
    assert "flashdepot depot clean --all" in done.stderr
