from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FAILED = "a.cu(3): warning\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashdepot", "explain", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def test_a_file_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(FAILED)
    done = run(str(log))
    assert done.returncode == 0
    assert "unsupported-gpu-arch" in done.stdout
    assert "line 2: nvcc fatal" in done.stdout


def test_standard_input_is_explained_as_one_document() -> None:
    done = run("-", "--json", stdin=FAILED)
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["status"] == "explained"
    assert document["findings"][0]["class"] == "unsupported-gpu-arch"
    assert document["findings"][0]["line"] == 2


def test_an_unknown_log_ends_with_4_and_its_earliest_error() -> None:
    done = run("-", stdin="all well\nerror: the widget broke\n")
    assert done.returncode == 4
    assert "No rule knows this log" in done.stdout
    assert "line 2: error: the widget broke" in done.stdout


def test_without_a_name_it_is_the_last_failed_compile_of_the_depot(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for age, (name, text) in enumerate(
        [("good", "a.cu(1): warning\n"), ("failed", FAILED), ("older", "nvcc error   : 'cicc' died due to signal 9\n")]
    ):
        (logs / f"{name}.log").write_text(text)
        os.utime(logs / f"{name}.log", (10**9 - age, 10**9 - age))
    done = run("--depot", str(tmp_path))
    assert done.returncode == 0
    assert "failed.log" in done.stderr
    assert "unsupported-gpu-arch" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere.log"], "/nowhere.log cannot be read"),
        (["--depot", "/nowhere/depot"], "No compile failed in this depot"),
        (["-", "--host", "/nowhere.json"], "flashdepot host --save"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
