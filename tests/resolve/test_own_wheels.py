"""What flashdepot itself offers next to what is published: a stored library, one to be compiled, pip's build."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from resolver_cases import CASES, CATALOG, Case

from flashdepot.build.schedule import Capacity
from flashdepot.depot import Depot
from flashdepot.events import Events
from flashdepot.model.candidate import Judged, Origin, WheelRequest
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.limits import Limits
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import PROFILES, select
from flashdepot.model.target import Version
from flashdepot.resolve.build import Making
from flashdepot.resolve.choice import InstallRequest, choose, wheel_request
from flashdepot.resolve.decide import decide
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.lock import judge_lock, lock_decision, read_lock, write_lock
from flashdepot.resolve.plan import OwnWheels
from flashdepot.resolve.project import library_request
from flashdepot.resolve.times import BANDWIDTH
from flashdepot.resolve.wheel_files import WheelAddress
from support.depots import flip_bit, store_library
from support.recipes import architectures
from support.toolkits import make_host
from support.upstreams import default_version, find_sdist

H100 = next(case for case in CASES if case.name == "torch 2.8 on an H100")
GB = 10**9


def own(depot: Depot, case: Case = H100, *, cores: int = 16, memory: int = 64 * GB, **wish: str) -> tuple[Judged, ...]:
    return tuple(OwnWheels(library_request(**wish), case.host, depot, Capacity(cores, memory)).candidates(case.request))


def store(depot: Depot, folder: Path, profile: str = "full", **changes: Any) -> None:
    known = find_sdist(default_version()).identified
    facts = {"sass": architectures("80,90"), "driver_floor": Version("580"), "libc_floor": Version("2.34"), **changes}
    store_library(depot, folder, upstreams={"fa2": known.id}, selection=select(PROFILES[profile], known.units), **facts)


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path / "depot")


def test_a_stored_library_that_serves_comes_before_every_published_wheel(depot, tmp_path) -> None:
    store(depot, tmp_path / "files")
    decision = decide(H100.request, CATALOG, own(depot, families="fa2"))
    chosen, second = decision.chosen, decision.runner_up
    assert chosen is not None
    assert second is not None
    assert (chosen.candidate.origin, chosen.verdict, chosen.verified) == (Origin.DEPOT, Verdict.FITS, True)
    assert chosen.candidate.name.startswith("flash_attn-2.8.3.post2+cu130.full.sm80.sm90-0x")
    assert chosen.candidate.name.endswith("-py3-none-manylinux_2_34_x86_64.whl")
    assert chosen.candidate.size == 0
    assert second.candidate.origin is Origin.OFFICIAL


def test_without_network_what_is_here_comes_before_what_is_certain_to_work(depot, tmp_path, monkeypatch) -> None:
    store(depot, tmp_path / "files")
    record = replace(H100.host, driver=None)
    monkeypatch.setattr("flashdepot.resolve.choice.facts_of", lambda _: replace(H100.facts, driver=None))
    asked = InstallRequest(library_request(families="fa2"))
    first = choose(asked, record, depot, Events())
    assert isinstance(first.wheel, WheelAddress), "the official one runs with more drivers"
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert choose(asked, record, depot, Events()).source == "ours"
    assert choose(replace(asked, sources=frozenset({"official"})), record, depot, Events()).wheel == first.wheel
    place = first.wheel.place(depot.layout.downloads)
    place.parent.mkdir(parents=True)
    place.touch()
    assert choose(asked, record, depot, Events()).wheel == first.wheel, "it was fetched before"


def test_what_would_be_built_with_kernels_that_are_untested_there_says_so(depot) -> None:
    b200 = Case("a B200", {**H100.values, "gpus": ["10.0"]})
    (both,) = own(depot, b200, families="all")
    assert both.candidate.name.endswith("built here for sm_100 (untested: fa4 on 10.0)")
    for judged in (*own(depot, b200), *own(depot, H100, families="all")):
        assert "untested" not in judged.candidate.name


def test_a_damaged_stored_library_is_not_offered(depot, tmp_path) -> None:
    store(depot, tmp_path / "files")
    (manifest,) = depot.artifacts.manifests()
    flip_bit(depot.layout.blob(manifest.files[1].digest))
    assert [judged.candidate.origin for judged in own(depot, families="fa2")] == [Origin.OURS]


def test_a_stored_library_is_locked_by_its_recipe(depot, tmp_path) -> None:
    store(depot, tmp_path / "files")
    (stored,) = own(depot, families="fa2")
    write_lock(tmp_path / "flashdepot.lock", lock_decision(stored, H100.request, accept_unverified=False))
    lock = read_lock(tmp_path / "flashdepot.lock")
    assert (lock.origin, lock.wheel.recipe_key) == (Origin.DEPOT, stored.candidate.recipe_key)
    assert not lock.needs_digest
    assert judge_lock(lock, H100.request) == ()
    older = replace(H100.request, facts=override(H100.facts, NamedFacts(glibc="2.28", torch="2.5.1+cu118")))
    assert [reason.id for reason in judge_lock(lock, older)] == ["libc"]


def test_more_cores_compile_sooner_and_little_memory_later(depot) -> None:
    seconds = [
        own(depot, cores=c, memory=m)[0].candidate.seconds for c, m in ((32, 256 * GB), (4, 256 * GB), (4, 8 * GB))
    ]
    assert seconds == sorted(set(seconds))


@pytest.mark.parametrize(("glibc", "verdict"), [("2.17", Verdict.FITS), ("2.16", Verdict.MISFIT)])
def test_it_runs_with_any_c_library_from_2_17_on(depot, glibc, verdict) -> None:
    older = replace(H100.request, facts=override(H100.facts, NamedFacts(glibc=glibc)))
    (judged,) = OwnWheels(LibraryRequest(), H100.host, depot, Capacity(16, 64 * GB)).candidates(older)
    assert judged.verdict is verdict
    assert judged.candidate.wheel.platform.startswith("manylinux_2_17_")


def test_a_smaller_profile_compiles_sooner(depot) -> None:
    quick, full = own(depot, profile="quick")[0], own(depot)[0]
    assert quick.candidate.seconds < full.candidate.seconds / 10


def test_a_build_is_said_to_take_as_long_as_the_question_before_it_says(depot, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.resolve.times.crowding", lambda _: 1.5)
    (judged,) = own(depot, cores=2, memory=16 * GB)
    making = Making(judged.candidate.need, depot, H100.host, Limits(jobs=2, memory=16 * GB))
    fetching = sum(fetch.size for fetch in making.fetches) / BANDWIDTH
    assert judged.candidate.seconds == pytest.approx(making.usual().seconds - making.first_link + fetching, abs=15)


def test_the_version_that_is_asked_for_is_the_one_that_is_offered(depot) -> None:
    older = replace(H100.request, version=">=2.7,<2.8")
    (judged,) = OwnWheels(LibraryRequest(), H100.host, depot, Capacity(16, 64 * GB)).candidates(older)
    assert judged.candidate.wheel.version == "2.7.4.post1"
    assert judged.verdict is Verdict.FITS


@pytest.mark.parametrize(
    "request_", [WheelRequest(H100.facts, version="2.5"), WheelRequest(H100.facts, "flash-attn-3")]
)
def test_what_flashdepot_cannot_make_is_not_offered(request_, depot) -> None:
    assert list(OwnWheels(LibraryRequest(), H100.host, depot, Capacity(16, 64 * GB)).candidates(request_)) == []


def test_nothing_is_written_by_asking(depot) -> None:
    own(depot)
    assert not depot.root.exists()


@pytest.mark.parametrize(("upstream", "version"), [("2.8.3", "2.8.3"), ("../flash-attention", ""), (None, "")])
def test_only_a_published_source_says_the_version_of_the_wheel(upstream, version) -> None:
    asked = InstallRequest(LibraryRequest(upstream=upstream))
    assert wheel_request(asked, make_host(), lambda _: None).version == version
