"""Hints are pasted into a shell: a path in one is one word there, whatever it is called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.tools import flashdepot_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the hints of other systems are for other shells")

NAMES = ["x;touch pwned #", "$(touch pwned)", "`touch pwned`", "a b", "it's", "&touch pwned&"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        ("project/flashdepot.toml", 'cuda = "/opt/cuda"\n', ["resolve"]),
        ("config/flashdepot/remotes.toml", "torn", ["remote", "ls"]),
        ("config/flashdepot/keys.toml", "torn", ["keys", "ls"]),
        ("config/flashdepot/trusted.json", "torn", ["trust", "--list"]),
    ],
)
def test_pasting_a_hint_runs_nothing_that_a_folders_name_says(
    tmp_path: Path, name: str, file: str, text: str, command: list[str]
) -> None:
    world = tmp_path / name
    path = world / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (world / "project").mkdir(exist_ok=True)
    places = {"XDG_CONFIG_HOME": str(world / "config"), "FLASHDEPOT_HOME": str(world / "depot")}
    done = flashdepot_in(world / "project", *command, **places, FLASHDEPOT_OFFLINE="1")
    hints = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
    for hint in hints:
        pasted = hint.rpartition(": ")[2].replace("flashdepot ", "true ", 1)
        subprocess.run(["sh", "-c", pasted], capture_output=True, check=False, cwd=tmp_path)
    assert not (tmp_path / "pwned").exists(), hints
    assert sorted(tmp_path.iterdir()) == [world]
