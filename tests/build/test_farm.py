"""Builds on a Dask cluster of real processes: what is compiled there, and what a death in the middle costs."""

import hashlib
import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flashdepot import __version__
from flashdepot.build.cluster import Cluster, FarmWorker
from flashdepot.build.farm import choose_worker
from flashdepot.build.farm_worker import refusal
from flashdepot.errors import NetworkError
from support.farm import NEEDS_DASK, PACKAGE, Farm, FarmBuild, ends, kill_worker_of, wait_for
from support.tools import KILL

pytestmark = NEEDS_DASK

ENDS_WITHIN = 30.0
"""What is to end within five seconds of an idle machine."""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A scheduler with two workers of two slots and 4 GB each."""
    made = Farm(tmp_path_factory.mktemp("farm"))
    try:
        made.start(workers=2)
        yield made
    finally:
        made.stop()


@pytest.fixture
def own_farm(tmp_path: Path) -> Iterator[Farm]:
    """A cluster that a test may break: a scheduler without workers."""
    made = Farm(tmp_path / "farm")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_workers_compile_what_needs_what_and_retry_what_memory_killed(farm, tmp_path) -> None:
    died = tmp_path / "died"
    sources = {
        "common.h": "1",
        "device.src": "include common.h\n",
        "host.src": "# the other side\n",
        "large.src": f"die-once {died}\n",
        **{f"u{i}.src": f"sleep 0.05\n# {i}\n" for i in range(6)},
    }
    build = FarmBuild(tmp_path, farm, sources, options={"needs": {"host": {"fatbin": "device"}}})
    done = build.run()
    assert "error" not in done, done
    assert sorted(done["compiled"]) == sorted(["device", "host", "large", *(f"u{i}" for i in range(6))])
    content = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sources.items()}
    assert {f"{name}.src": digest for name, digest in done["digests"].items() if name != "device"} == {
        name: digest for name, digest in content.items() if name not in ("common.h", "device.src")
    }
    assert done["digests"]["device"] == hashlib.sha256(b"include common.h\n1").hexdigest()
    assert died.exists()
    assert any("large: the compiler was killed for memory; it will run again" in note for note in done["notes"])
    assert done["workers"].keys() == set(done["compiled"])
    assert not re.search(r"distributed\.\w+ - ", done["complaints"]), (
        "one display of progress; Dask is silent next to it"
    )


def test_units_are_spread_over_all_slots_at_once(farm, tmp_path) -> None:
    sources = {f"u{i}.src": f"sleep 0.5\n# {i}\n" for i in range(4)}
    done = FarmBuild(tmp_path, farm, sources).run()
    assert sorted(Counter(done["workers"].values()).values()) == [2, 2]


def test_what_a_compiler_refuses_is_reported_with_its_log(farm, tmp_path) -> None:
    sources = {"bad.src": "fail bad.src(3): error: no such thing\n", "good.src": "# fine\n"}
    failed = FarmBuild(tmp_path, farm, sources, options={"keep_going": True}).run()
    assert "bad: the compiler ended with status 1: bad.src(3): error: no such thing" in failed["error"]
    assert failed["code"] == 5
    assert failed["kept"] == ["good"]
    assert "no such thing" in Path(failed["hint"].split()[-1]).read_text()


@pytest.mark.parametrize("how", [signal.SIGINT, KILL])
def test_a_client_that_ends_leaves_no_compiler_and_a_cluster_that_works(farm, tmp_path, how) -> None:
    mark = tmp_path / "mark"
    build = FarmBuild(tmp_path, farm, {"quick.src": "# quick\n", "slow.src": f"spawn\nhang-once {mark}\n"})
    build.start()
    compiler = build.hung(mark)
    family = [compiler, *compiler.children(recursive=True)]
    assert len(family) == 2
    wait_for(lambda: build.kept() == ["quick"], "the quick one")
    build.process.send_signal(how)
    assert all(ends(process, ENDS_WITHIN) for process in family)
    build.process.communicate()
    if how == KILL:
        again = FarmBuild(tmp_path, farm, {}).run()
        assert again["compiled"] == ["slow"], "what had finished is kept, and the same cluster compiles the rest"


def test_a_worker_that_is_killed_costs_what_it_was_running(own_farm, tmp_path) -> None:
    mark = tmp_path / "mark"
    first, second = own_farm.add_worker(), own_farm.add_worker()
    sources = {f"u{i}.src": f"# {i}\n" for i in range(4)} | {"slow.src": f"hang-once {mark}\n"}
    build = FarmBuild(tmp_path, own_farm, sources)
    build.start()
    compiler = build.hung(mark)
    wait_for(lambda: len(build.kept()) == 4, "the others")
    kill_worker_of(compiler)
    assert ends(compiler, ENDS_WITHIN), "a compiler ends with its worker"
    done = build.finish()
    assert len(done["compiled"]) == 5
    assert (first.poll() is None) != (second.poll() is None)
    assert own_farm.journal.count("start slow") == 2
    assert sum(line.startswith("start u") for line in own_farm.journal) == 4
    assert any("has gone" in note for note in done["notes"])


def test_a_unit_that_kills_one_worker_after_another_is_named(own_farm, tmp_path) -> None:
    for _ in range(2):
        own_farm.add_worker()
    failed = FarmBuild(tmp_path, own_farm, {"poison.src": "kill-worker\n"}).run()
    assert failed["error"].startswith("poison: 2 workers died one after another while they compiled it")
    assert failed["code"] == 5
    assert "--head-dims" in failed["hint"]


def test_without_its_scheduler_a_build_ends_with_what_to_do_and_keeps_what_finished(own_farm, tmp_path) -> None:
    mark = tmp_path / "mark"
    own_farm.add_worker()
    build = FarmBuild(tmp_path, own_farm, {"a.src": "# quick\n", "slow.src": f"hang-once {mark}\n"})
    build.start()
    compiler = build.hung(mark)
    wait_for(lambda: build.kept() == ["a"], "the quick one")
    own_farm.scheduler.kill()
    failed = build.finish()
    assert "does not answer any more" in failed["error"]
    assert "without --farm" in failed["hint"]
    assert failed["code"] == 7
    assert failed["kept"] == ["a"]
    assert ends(compiler, ENDS_WITHIN)


def test_a_worker_with_other_compilers_is_refused(farm, tmp_path) -> None:
    tools = {"tools": [["nvcc", "13.0.88", "a" * 64]]}
    refused = FarmBuild(tmp_path, farm, {"a.src": "# a\n"}, options=tools).run()
    assert "its nvcc is 13.0.99 with SHA-256" in refused["error"]
    assert "and the build's is 13.0.88 with SHA-256 aaaaaaaaaaaa" in refused["error"]
    assert refused["code"] == 3
    assert "--cuda auto" in refused["hint"]


def test_a_worker_that_cannot_serve_is_refused_with_how_to_start_one(own_farm, tmp_path) -> None:
    own_farm.add_worker("--name", "greedy")
    refused = FarmBuild(tmp_path / "one", own_farm, {"a.src": "# a\n"}).run()
    assert "none of its workers says how much memory compilers may use" in refused["error"]
    assert "--resources memory=" in refused["hint"]
    other = tmp_path / "other"
    shutil.copytree(PACKAGE / "flashdepot", other / "flashdepot", ignore=shutil.ignore_patterns("__pycache__"))
    (other / "flashdepot" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    own_farm.add_worker("--resources", "memory=4e9", "--name", "old", PYTHONPATH=str(other))
    refused = FarmBuild(tmp_path / "two", own_farm, {"a.src": "# a\n"}).run()
    assert f"The worker old has flashdepot 0.0.1, and this is {__version__}" in refused["error"]
    assert f"pip install '.[farm]' in the clone of flashdepot {__version__}" in refused["hint"]
    assert refused["code"] == 4


def test_a_worker_that_has_neither_compilers_nor_network_is_refused_with_what_gives_it_them(own_farm, tmp_path) -> None:
    own_farm.add_worker("--resources", "memory=4e9", FLASHDEPOT_HOME=str(tmp_path / "empty"))
    refused = FarmBuild(tmp_path / "build", own_farm, {"a.src": "# a\n"}).run()
    assert "cannot compile for this build: " in refused["error"]
    assert "Give that machine the network, or its user a depot that has nvcc and zig" in refused["hint"]


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (("1.0", "3.12"), None),
        (("1.1", "3.12"), "has flashdepot 1.1, and this is 1.0"),
        (("1.0", "3.10"), "runs Python 3.10"),
    ],
)
def test_flashdepot_and_python_are_the_same_on_both_sides(theirs, said) -> None:
    refused = refusal(theirs, ("1.0", "3.12"))
    assert (said in refused.reason) if refused and said else refused is said


@pytest.mark.parametrize("status", ["lost", "cancelled"])
def test_a_result_that_dies_with_its_worker_is_made_again_and_one_that_dies_with_the_scheduler_is_an_error(
    status,
) -> None:
    client: Any = SimpleNamespace(status="running", subscribe_topic=lambda *_: None)
    future: Any = SimpleNamespace(status=status)
    cluster = Cluster(client, "tcp://head:8786")
    assert cluster.result("unit", future) == ("", None)
    client.status = "connecting"
    with pytest.raises(NetworkError, match="does not answer any more"):
        cluster.result("unit", future)


def test_nobody_is_there(farm, tmp_path) -> None:
    failed = FarmBuild(tmp_path, farm, {"a.src": "# a\n"}, address="tcp://127.0.0.1:9").run()
    assert "No Dask scheduler answers at tcp://127.0.0.1:9" in failed["error"]
    assert failed["code"] == 7
    assert "dask scheduler" in failed["hint"]


def test_a_unit_that_no_worker_has_the_memory_for_is_refused(farm, tmp_path) -> None:
    failed = FarmBuild(tmp_path, farm, {"a.src": "# a\n"}, options={"sizes": {"a": 9 * 10**9}}).run()
    assert "a is expected to take 9.0 GB, and none of the farm's workers declares more than 4.0 GB" in failed["error"]
    assert "memory=9e9" in failed["hint"]
    assert failed["code"] == 3


GB = 10**9
SMALL, LARGE = FarmWorker("tcp://a", "a", 2, 8 * GB), FarmWorker("tcp://b", "b", 4, 24 * GB)


def spread(count: int, size: int, workers: tuple[FarmWorker, ...]) -> str:
    """The workers that so many actions of one size go to, one after the other; those that wait are left out."""
    given: list[tuple[str, int]] = []
    for _ in range(count):
        if worker := choose_worker(workers, given, size, by_itself=False):
            given.append((worker.address, size))
    return "".join(address.removeprefix("tcp://") for address, _ in given)


def test_every_slot_is_filled_and_memory_is_kept_to() -> None:
    workers = tuple(FarmWorker(f"tcp://{n}", str(n), 4, 24 * GB) for n in range(8))
    taken = spread(40, 4 * GB, workers)
    assert Counter(taken) == dict.fromkeys(map(str, range(8)), 4)
    assert len(set(taken[:8])) == 8, "one for each before any gets two"
    assert spread(9, 5 * GB, (SMALL, LARGE)) == "bbbab"
    assert spread(3, 9 * GB, (SMALL, LARGE)) == "bb"


def test_what_must_run_by_itself_waits_for_a_worker_that_has_nothing_else() -> None:
    assert choose_worker((SMALL, LARGE), [(LARGE.address, GB)], 8 * GB, by_itself=True) == SMALL
    assert choose_worker((SMALL, LARGE), [(LARGE.address, GB)], 9 * GB, by_itself=True) is None
    assert choose_worker((SMALL,), [("tcp://dead", GB), ("", GB)], 8 * GB, by_itself=True) == SMALL
