from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from attacks.kill_many import LONGEST_LIFE, attack

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("g++") is None, reason="needs kill -9, and a g++ for the stand-ins"
)


def test_commands_that_are_killed_leave_nothing_running_and_nothing_broken(tmp_path: Path, upstream_tree: Path) -> None:
    """Few kills; ``python tests/attacks/kill_many.py 200 FOLDER`` makes many."""
    report = attack(tmp_path, upstream_tree, kills=4, seed=20261121)
    assert report.problems == []
    assert report.longest_life < LONGEST_LIFE
    assert sum(report.kills.values()) >= 4
