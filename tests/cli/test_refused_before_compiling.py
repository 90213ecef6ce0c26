"""What cannot be built is refused in words that name a way out, before anything is fetched or compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).parents[1] / "doctor" / "records" / "ubuntu-24.04-h100.json"
QUICK = ("get", "--profile", "quick")


def offline(depot: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashdepot", *words, "--depot", str(depot), "--offline"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (
            ("--arch", "90", "--target", "macos-arm64"),
            2,
            "'macos-arm64' is not a target: there are linux-x86_64, linux-aarch64, windows-x86_64.",
        ),
        (
            ("--arch", "80,200"),
            3,
            "nvcc 13.0.88 cannot make sm_200: its newest is sm_121. 'flashdepot get --arch list'",
        ),
        (("--arch", "90"), 7, "needs the network, and --offline or FLASHDEPOT_OFFLINE forbids it.\n  Run it once with"),
    ],
)
def test_with_nothing_in_the_depot(words: tuple[str, ...], exit_code: int, said: str, tmp_path: Path) -> None:
    done = offline(tmp_path / "depot", *QUICK, *words)
    assert done.returncode == exit_code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("driver", "way_out"), [("535.104.05", "--cuda 12.8"), ("470.82", "Update the driver: no nvcc")]
)
def test_a_driver_below_the_floor(driver: str, way_out: str, tmp_path: Path) -> None:
    record = tmp_path / "host.json"
    record.write_text(json.dumps({**json.loads(RECORD.read_text()), "driver": driver}))
    done = offline(tmp_path / "depot", *QUICK, "--arch", "90", "--host", str(record))
    assert done.returncode == 4
    assert f"driver is {driver}; what nvcc 13.0.88 builds needs 580" in done.stderr
    assert way_out in done.stderr


@pytest.mark.nvcc
def test_no_network_is_needed_where_everything_is_in_the_depot(quick_library: Path, flashdepot: Any) -> None:
    answer = flashdepot(*QUICK, "--arch", "80,90", "--offline")
    assert answer["status"] == "hit"
    assert Path(answer["path"]) == quick_library
