"""What is said before a build, and who is asked."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flashdepot import api
from flashdepot.cli.options import _limits
from flashdepot.depot import Depot
from flashdepot.errors import ConsentError, NetworkError, UsageError
from flashdepot.events import Events
from flashdepot.model.limits import Compiling
from flashdepot.resolve.consent import may_compile
from support.programs import write_stand_in
from support.tools import assert_ends, at_a_terminal, flashdepot_here, posix

pytestmark = posix("nvcc that flashdepot could start")

LONG = ("--arch", "80")
SHORT = ("--profile", "quick", "--arch", "80")


@pytest.fixture(autouse=True)
def _nobody_has_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLASHDEPOT_BUILD")
    monkeypatch.setattr("flashdepot.host.tools.find_compilers", tuple)  # no compiler is asked its version


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    """A depot that is not there yet."""
    return tmp_path / "depot"


def offline(*words: str, depot: Path) -> subprocess.CompletedProcess[str]:
    """A run without terminal and network: what goes on to fetch anything ends with exit code 7."""
    return flashdepot_here(*words, "--depot", depot, "--offline", cwd=depot.parent)


@pytest.mark.parametrize("command", [["get"], ["build"], ["wheel", "--out", "dist"], ["vendor"]])
def test_a_dry_run_says_what_would_be_fetched_and_compiled_and_makes_nothing(command, depot) -> None:
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
    assert "the source of FlashAttention-2 8.5 MB), which --offline or FLASHDEPOT_OFFLINE forbids." in page
    assert "--profile quick" in page


@pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 15), reason="CuTe DSL is for Python 3.11 to 3.14")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CuTe DSL is for Linux")
@pytest.mark.parametrize(("families", "units"), [("fa4", 19), ("all", 21)])
def test_a_family_that_is_asked_for_brings_its_compiler_and_its_source(depot, families, units) -> None:
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


def test_less_at_once_takes_less_memory_and_more_time(depot) -> None:
    def plan(*options: str) -> Any:
        return json.loads(offline("get", *LONG, "--dry-run", "--json", *options, depot=depot).stdout)

    one, four = plan("--jobs", "1", "--memory", "100GB"), plan("--jobs", "4", "--memory", "100GB")
    assert (one["jobs"], four["jobs"]) == (1, 4)
    assert one["memory"] < four["memory"]
    assert one["seconds"] > 2 * four["seconds"], "of two cores"


def test_compilers_that_the_memory_has_no_room_for_are_not_counted(depot) -> None:
    found = json.loads(
        offline("get", *LONG, "--dry-run", "--json", "--jobs", "8", "--memory", "1GB", depot=depot).stdout
    )
    assert (found["jobs"], found["memory_limit"]) == (2, 10**9), "two of the C layer"
    assert found["memory"] > 10**9, "the largest runs by itself"


VERBS = (
    ["get"],
    ["build"],
    ["wheel", "--out", "dist"],
    ["vendor"],
    ["link", "cmake", "--get"],
    ["link", "candle", "--get", "--candle-version", "0.9.1", "--build-dir", "prebuilt"],
    ["depot", "audit", "--all"],
)


@pytest.mark.parametrize("command", VERBS)
def test_without_a_terminal_a_long_build_ends_with_its_forecast_and_the_command(command, depot, tmp_path) -> None:
    if "candle" in command:
        command = [*command, "--crate", str(write_stand_in(tmp_path / "crate", "0.9.1"))]
    done = offline(*command, *LONG, depot=depot)
    assert done.returncode == ConsentError.exit_code, done.stderr
    assert "Compiling this needs a yes. To compile: " in done.stderr
    assert "Smaller builds:\n    --profile " in done.stderr
    assert not depot.exists(), "nothing was fetched"
    again = shlex.split(done.stderr.partition("To compile it: ")[2])
    assert again == ["flashdepot", *command, *LONG, "--depot", str(depot), "--offline", "-y"]
    agreed = flashdepot_here(*again[1:], cwd=depot.parent)
    assert agreed.returncode == NetworkError.exit_code, "it continued to fetch the compiler"
    document = json.loads(offline(*command, *LONG, "--json", depot=depot).stdout)
    assert document["exit_code"] == ConsentError.exit_code


def test_all_parts_of_a_matrix_are_asked_for_once_before_the_first(depot) -> None:
    matrix = depot.parent / "publish.toml"
    matrix.write_text('[matrix]\narch = ["80", "86"]\n')
    done = offline("publish", str(matrix), "--no-push", depot=depot)
    assert_ends(done, ConsentError.exit_code, "To compile: 144 kernels")
    assert not depot.exists()


@pytest.mark.parametrize("command", [["get"], ["wheel"], ["vendor"], ["link", "cmake", "--get"]])
def test_somebody_at_a_terminal_is_asked_before_a_long_build(command, depot) -> None:
    words = (*command, *LONG, "--depot", str(depot), "--offline")
    seen = at_a_terminal(*words, types={"[y/N]": "n\n"}, cwd=depot.parent)
    assert seen.status == ConsentError.exit_code
    assert "To compile: 72 kernels; about " in seen.shown
    assert "--profile inference" in seen.shown
    assert "needs a yes" not in seen.shown, "the question said it all"
    assert "Nothing was compiled." in seen.shown
    assert not depot.exists(), "nothing was fetched"


def test_a_yes_continues(depot) -> None:
    seen = at_a_terminal("get", *LONG, "--depot", str(depot), "--offline", types={"[y/N]": "y\n"}, cwd=depot.parent)
    assert seen.status == 7, "it continued to fetch the compiler"
    assert seen.shown.count("To compile: 72 kernels") == 1


@pytest.mark.parametrize("words", [(*LONG, "--yes"), (*LONG, "--build", "always"), SHORT])
def test_nobody_is_asked_who_said_yes_or_waits_a_minute(words, depot) -> None:
    seen = at_a_terminal("get", *words, "--depot", str(depot), "--offline", cwd=depot.parent)
    assert seen.status == 7
    assert "[y/N]" not in seen.shown
    assert "To compile: " in seen.shown


def test_never_forbids_short_builds_too(depot) -> None:
    done = offline("get", *SHORT, "--build", "never", depot=depot)
    assert done.returncode == ConsentError.exit_code
    assert 'build="never" forbids compiling. To compile: 2 kernels' in done.stderr
    assert f"To compile it: flashdepot get {' '.join(SHORT)} --depot {depot} --offline -y" in done.stderr


def test_a_yes_is_an_option_before_a_variable_before_a_project_before_a_users_setting(depot, monkeypatch) -> None:
    settings, project = depot.parent / "config" / "settings.toml", depot.parent / "flashdepot.toml"
    settings.parent.mkdir()
    monkeypatch.setattr("flashdepot.resolve.consent.user_config", lambda: settings.parent)
    monkeypatch.setattr("flashdepot.cli.options.Path.cwd", lambda: depot.parent)

    def said(**words: Any) -> Compiling:
        none: dict[str, Any] = dict.fromkeys(("jobs", "memory", "farm", "build"))
        return may_compile(_limits(**{**none, "yes": False, **words}))[0]

    assert said() is Compiling.ASK
    settings.write_text('build = "always"')
    assert said() is Compiling.ALWAYS
    project.write_text('build = "never"')
    assert said() is Compiling.NEVER
    monkeypatch.setenv("FLASHDEPOT_BUILD", "ask")
    assert said() is Compiling.ASK
    assert said(build="never") is Compiling.NEVER
    assert said(build="never", yes=True) is Compiling.ALWAYS
    monkeypatch.setenv("FLASHDEPOT_BUILD", "sometimes")
    with pytest.raises(UsageError, match="FLASHDEPOT_BUILD is 'sometimes': expected never, ask, always"):
        said()
    settings.write_text("colour = 1")
    monkeypatch.delenv("FLASHDEPOT_BUILD")
    monkeypatch.setattr("flashdepot.host.tools.find_compilers", tuple)  # no compiler is asked its version
    project.unlink()
    with pytest.raises(UsageError, match="'colour' is not a setting"):
        said()


def test_a_project_that_nobody_trusts_starts_no_compiler(depot) -> None:
    (depot.parent / "flashdepot.toml").write_text('build = "always"\n')
    done = offline("get", *LONG, depot=depot)
    assert_ends(done, UsageError.exit_code, "It lets compilers start without asking")


def test_the_api_compiles_for_long_only_after_a_yes(depot, monkeypatch) -> None:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    asked: list[str] = []

    class Agrees(Events):
        def confirm(self, question: str) -> bool:
            asked.append(question)
            return True

    request, opened = api.library_request(arch="80"), Depot(depot)
    with pytest.raises(ConsentError, match="To compile: 72 kernels"):
        api.get(request, depot=opened)
    with pytest.raises(NetworkError):
        api.get(request, depot=opened, events=Agrees())
    with pytest.raises(NetworkError):
        api.get(request, depot=opened, limits=api.Limits(build=Compiling.ALWAYS))
    assert len(asked) == 1


def test_candle_gets_what_its_version_can_call(depot) -> None:
    def planned(version: str) -> Any:
        words = ("link", "candle", "--get", "--dry-run", "--json", "--candle-version", version, "--build-dir", "there")
        done = offline(*words, *LONG, depot=depot)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["units"]["total"]

    assert (planned("0.9.1"), planned("0.11.1")) == (24, 48)
    assert list(depot.parent.iterdir()) == []


@pytest.mark.nvcc
def test_a_dry_run_knows_what_is_stored_and_what_is_compiled_already(flashdepot, quick_library, real_depot) -> None:
    assert flashdepot("get", "--profile", "quick", "--arch", "80,90", "--offline")["path"] == str(quick_library)
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
