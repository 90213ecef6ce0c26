"""What is said before a build, and who is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.terminal import at_a_terminal

LONG = ("--arch", "80")
SHORT = ("--profile", "quick", "--arch", "80")


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    """A depot that is not there yet."""
    return tmp_path / "depot"


def offline(*words: str, depot: Path) -> subprocess.CompletedProcess[str]:
    """A run without terminal and network: what goes on to fetch anything ends with exit code 7."""
    command = [sys.executable, "-m", "flashdepot", *words, "--depot", str(depot), "--offline"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=depot.parent, timeout=120)


@pytest.mark.parametrize("command", [["get"], ["build"], ["wheel", "--out", "dist"], ["vendor"]])
def test_a_dry_run_says_what_would_be_fetched_and_compiled_and_makes_nothing(command: list[str], depot: Path) -> None:
    done = offline(*command, *LONG, "--dry-run", "--json", depot=depot)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["status"], plan["exact"]) == ("planned", False)
    assert plan["units"] == {"total": 72, "compiled": 72, "reused": 0}
    assert [fetch["what"] for fetch in plan["fetches"]] == [
        "NVIDIA's compiler",
        "zig",
        "the source of FlashAttention-2",
    ]
    assert plan["memory"] > 10**9
    assert plan["disk"] > 10**8
    assert [other["options"] for other in plan["alternatives"]] == ["--profile inference", "--profile quick"]
    assert plan["seconds"] > 2 * plan["alternatives"][0]["seconds"]
    assert list(depot.parent.iterdir()) == []
    page = offline(*command, *LONG, "--dry-run", depot=depot).stdout
    assert "To compile: 72 kernels; about " in page
    assert "--profile quick" in page


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 15), reason="CuTe DSL is for Python 3.11 to 3.14")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CuTe DSL is for Linux")
@pytest.mark.parametrize(("families", "units"), [("fa4", 12), ("all", 14)])
def test_a_family_that_is_asked_for_brings_its_compiler_and_its_source(depot: Path, families: str, units: int) -> None:
    asked = ("--profile", "quick", "--arch", "90", "--families", families)
    plan = json.loads(offline("get", *asked, "--dry-run", "--json", depot=depot).stdout)
    assert plan["units"]["total"] == units
    assert [fetch["what"] for fetch in plan["fetches"]] == [
        "NVIDIA's compiler",
        "zig",
        *(["the source of FlashAttention-2"] if families == "all" else []),
        "the source of FlashAttention-4",
        "CuTe DSL",
    ]


def test_less_at_once_takes_less_memory_and_more_time(depot: Path) -> None:
    def plan(*options: str) -> Any:
        return json.loads(offline("get", *LONG, "--dry-run", "--json", *options, depot=depot).stdout)

    one, four = plan("--jobs", "1", "--memory", "100GB"), plan("--jobs", "4", "--memory", "100GB")
    assert (one["jobs"], four["jobs"]) == (1, 4)
    assert one["memory"] < four["memory"]
    assert one["seconds"] > 3 * four["seconds"]


def test_compilers_that_the_memory_has_no_room_for_are_not_counted(depot: Path) -> None:
    found = json.loads(
        offline("get", *LONG, "--dry-run", "--json", "--jobs", "8", "--memory", "1GB", depot=depot).stdout
    )
    assert (found["jobs"], found["memory_limit"]) == (1, 10**9)
    assert found["memory"] > 10**9, "the largest runs alone"


@pytest.mark.parametrize("command", [["get"], ["wheel"], ["vendor"], ["link", "cmake", "--get"]])
def test_somebody_at_a_terminal_is_asked_before_a_long_build(command: list[str], depot: Path) -> None:
    words = (*command, *LONG, "--depot", str(depot), "--offline")
    seen = at_a_terminal(*words, types={"[y/N]": "n\n"}, cwd=depot.parent)
    assert seen.status == 4
    assert "To compile: 72 kernels; about " in seen.shown
    assert "--profile inference" in seen.shown
    assert "was not to be compiled" in seen.shown
    assert not depot.exists(), "nothing was fetched"


def test_a_yes_goes_on(depot: Path) -> None:
    seen = at_a_terminal("get", *LONG, "--depot", str(depot), "--offline", types={"[y/N]": "y\n"}, cwd=depot.parent)
    assert seen.status == 7, "it went on to fetch the compiler"


@pytest.mark.parametrize("words", [(*LONG, "--yes"), (*LONG, "--json"), SHORT])
def test_nobody_is_asked_who_said_yes_wants_json_or_waits_a_minute(words: tuple[str, ...], depot: Path) -> None:
    seen = at_a_terminal("get", *words, "--depot", str(depot), "--offline", cwd=depot.parent)
    assert seen.status == 7
    assert "[y/N]" not in seen.shown
    assert "To compile: " in seen.shown


def test_without_a_terminal_one_line_says_what_will_be_done(depot: Path) -> None:
    done = offline("get", *LONG, depot=depot)
    assert done.returncode == 7
    assert sum(line.startswith("To compile: 72 kernels; about ") for line in done.stderr.splitlines()) == 1
    assert offline("get", *LONG, "-q", depot=depot).stderr.startswith("error:")


@pytest.mark.nvcc
def test_a_dry_run_knows_what_is_stored_and_what_is_compiled_already(
    flashdepot: Any, quick_library: Path, real_depot: Path
) -> None:
    assert flashdepot("get", "--profile", "quick", "--arch", "80,90", "--dry-run")["status"] == "hit"
    assert flashdepot("build", "--profile", "quick", "--arch", "80,90", "--dry-run")["status"] == "hit"
    more = flashdepot(
        "get", "--passes", "fwd", "--head-dims", "64", "--features", "none", "--arch", "80,90", "--dry-run"
    )
    assert more["exact"]
    assert more["fetches"] == []
    assert more["units"] == {"total": 4, "compiled": 2, "reused": 2}
    assert more["host_sides"] == 0
    arm = flashdepot("get", "--profile", "quick", "--arch", "80,90", "--target", "linux-aarch64", "--dry-run")
    assert arm["units"] == {"total": 2, "compiled": 0, "reused": 2}
    assert arm["host_sides"] == 2, "they are compiled for each CPU"
    assert arm["alternatives"] == []
