"""Fixtures for all tests: the real source, and a real `quick` library, made once for all of them."""

import datetime as dt
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from support import own_world, tiers
from support.tools import need_nvcc, tool

# The tools of the group `dev` (uv, ruff) are found as in an activated environment, whichever way pytest was started.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
own_world.enter()
# A shell's background jobs ignore Ctrl-C, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Who runs the tests agrees to what they compile; those about consent take this back.
os.environ["FLASHDEPOT_BUILD"] = "always"

hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")  # no test asserts a time: machines are shared
pytest_plugins = ["support.machines", "support.venvs"]


@pytest.fixture(autouse=True)
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be a user who has configured nothing, with an empty home; only tests that say so know of a package index."""
    folder = own_world.new_home()
    for name, value in own_world.home_variables(folder).items():
        monkeypatch.setenv(name, value)
    if "network" not in request.keywords:
        for name in own_world.index_variables():
            monkeypatch.delenv(name)
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", os.environ.get("FLASHDEPOT_OFFLINE", ""))  # a command's --offline sets it
    yield folder
    assert own_world.touched() == []


@pytest.fixture
def no_system_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have no file of pip's for the whole machine or of this Python either; gives the home that their folders are in."""
    monkeypatch.setattr("sys.prefix", str(home / "python"))
    monkeypatch.setattr("flashdepot.net.transport._site_folders", lambda: [home / "etc"])
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_option(parser)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.is_skipped(collection_path, config) or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a program that does not work here."""
    tiers.watch(item)
    if item.get_closest_marker("nvcc"):
        need_nvcc()
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            tool(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the files that take longest begin first, so that no worker is left with one of them at the end.

    A test that needs a real compiler counts as ten others.
    """
    tiers.assign(config, items)
    cost: Counter[Path] = Counter()
    for item in items:
        cost[item.path] += 10 if item.get_closest_marker("nvcc") else 1
    items.sort(key=lambda item: -cost[item.path])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how old the oldest table of facts is: no test fails by the calendar, and nobody forgets them."""
    tables: Any = runpy.run_path(str(Path(__file__).parents[1] / "scripts/check_tables.py"))
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    terminalreporter.write_line(f"oldest table of facts: {tables['oldest'](today)} (scripts/check_tables.py)")


@pytest.fixture(scope="session")
def real_depot(request: pytest.FixtureRequest) -> Path:
    """A depot that outlives the run, so that a second run of the tests compiles nothing again."""
    chosen = os.environ.get("FLASHDEPOT_TEST_DEPOT")
    return Path(chosen) if chosen else request.config.rootpath / ".pytest_cache" / "d" / "depot"


@pytest.fixture(scope="session")
def flashdepot(real_depot: Path) -> Any:
    """Run the command line on the real depot and return its JSON document."""

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "flashdepot", *arguments, "--depot", str(real_depot), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def upstream_tree(real_depot: Path) -> Path:
    """The newest published flash-attn, unpacked; fetched from PyPI the first time."""
    return _obtain("fa2", real_depot)


@pytest.fixture(scope="session")
def source_trees(upstream_tree: Path, real_depot: Path) -> dict[str, Path]:
    """By the names that compilations give them, the trees that sources of the C layer include."""
    return {"upstream": upstream_tree, "fa3": _obtain("fa3", real_depot)}


def _obtain(family: str, depot: Path) -> Path:
    from flashdepot.kernels import family_of  # noqa: PLC0415

    sources = family_of(family).sources
    return sources.obtain(sources.default_version(), depot / "upstreams").root


@pytest.fixture(scope="session")
def quick_library(flashdepot: Any) -> Path:
    """A library of the profile `quick`, compiled by a real nvcc (about a minute on two cores the first time)."""
    need_nvcc()
    return Path(flashdepot("get", "--profile", "quick", "--arch", "80,90")["path"])


@pytest.fixture(scope="session")
def cuda_include(real_depot: Path) -> Path:
    """Find the folder with cuda_runtime_api.h; a depot that has built something has one."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), nvcc and Path(nvcc).resolve().parents[1]]
    for root in [*roots, "/usr/local/cuda", *sorted((real_depot / "toolchains").glob("cuda-*"))]:
        if root and (Path(root) / "include" / "cuda_runtime_api.h").is_file():
            return Path(root) / "include"
    pytest.skip("needs the CUDA headers; set CUDA_HOME to a toolkit")
