from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attacks.kill_sharing import attack

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9 and os.fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]


def test_commands_that_share_and_are_killed_lose_no_key_and_tear_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few kills; ``python tests/attacks/kill_sharing.py 100 FOLDER`` makes many."""
    report = attack(tmp_path / "house", monkeypatch, kills=3, seed=20261123)
    assert report.problems == []
