"""Which stored library serves a request, and what its page says."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flashdepot.cli.library_commands import describe
from flashdepot.depot import Depot, choose
from flashdepot.fit.requests import unmet
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import UpstreamId
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.resolve.library import LibraryResult
from support.depots import make_manifest, make_request, make_selection, make_unit
from support.recipes import architectures

MORE_UNITS = make_selection(make_unit(), make_unit("bwd"))
MORE_FEATURES = make_selection(features="softcap local")


@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        ({}, {}),
        ({}, {"selection": MORE_UNITS}),
        ({}, {"selection": MORE_FEATURES}),
        ({"gpus": architectures("89")}, {"sass": "80"}),
        ({"gpus": architectures("80,90")}, {"sass": "80,90,120"}),
        ({"gpus": ()}, {"sass": "90"}),
        ({"driver": None, "libc": None}, {"driver_floor": Version("999"), "libc_floor": Version("9")}),
        ({"cuda_major": 13}, {"cuda": "13.1"}),
    ],
)
def test_what_can_do_more_than_was_asked_for_is_taken(wanted, stored):
    manifest = make_manifest(**stored)
    assert choose(make_request(**wanted), [manifest]).taken == manifest


@pytest.mark.parametrize(
    ("wanted", "stored", "reason"),
    [
        ({"selection": MORE_UNITS}, {}, "lacks bwd_hdim64_bf16"),
        ({"selection": MORE_FEATURES}, {}, "lacks the features local, softcap"),
        ({"gpus": architectures("80")}, {"sass": "86"}, "none that runs on sm_80"),
        ({"gpus": architectures("90")}, {"sass": "80"}, "none that runs on sm_90"),
        ({"gpus": architectures("90,120")}, {"sass": "90"}, "none that runs on sm_120"),
        ({"driver": Version("550.54")}, {}, "needs NVIDIA driver 580.65.06"),
        ({"libc": Version("2.17")}, {}, "needs the GNU C library 2.28"),
        ({"cuda_major": 12}, {}, "made with CUDA 13, and 12 was asked for"),
        ({"platform": Platform("linux", "aarch64")}, {}, "made for linux-x86_64"),
        ({"upstreams": {"fa2": UpstreamId("2.7.4", "e" * 64)}}, {}, "made from flash-attn 2.8.3.post2"),
    ],
)
def test_what_does_not_serve_is_rejected_with_the_reason(wanted, stored, reason):
    choice = choose(make_request(**wanted), [make_manifest(**stored)])
    assert choice.taken is None
    [(_, reasons)] = choice.rejected
    assert reason in "; ".join(reasons)


def named(name: str, **overrides: Any) -> Manifest:
    return make_manifest(recipe_key=digest_of(name), **overrides)


def test_less_code_wins_and_of_two_with_the_same_the_newer_whatever_their_bytes():
    more = named("more", sass="80,90")
    newer, older = named("newer", size=1000), named("older", size=10)
    assert choose(make_request(), [more, newer, older]).taken == newer
    assert choose(make_request(), [older, more, newer]).taken == older
    assert choose(make_request(), [more]).taken == more


def test_the_depot_takes_the_newest_of_two_libraries_that_serve_alike(tmp_path, monkeypatch):
    depot = Depot(tmp_path)
    for second, name in ((30, "old"), (50, "new"), (40, "middle")):
        monkeypatch.setattr(time, "time", lambda second=second: 1e9 + second)
        depot.artifacts.store(replace(named(name), files=()), {})
    for name in ("new", "middle", "old"):
        assert depot.find(make_request()).taken == replace(named(name), files=())
        depot.layout.artifact(digest_of(name)).unlink()


def test_what_a_named_compiler_made_serves_only_who_names_the_same():
    manifest = make_manifest()
    named = replace(manifest, toolchain=replace(manifest.toolchain, named=True))
    same = make_request(compiler=manifest.toolchain.device_compiler)
    assert unmet(same, named) == unmet(same, manifest) == unmet(make_request(), manifest) == ()
    assert "named by its folder" in unmet(make_request(), named)[0]
    assert "another nvcc than the one that is named" in unmet(make_request(compiler="e" * 64), named)[0]
    assert "another nvcc" in unmet(make_request(compiler="e" * 64), manifest)[0]


def test_the_nearest_miss_comes_first():
    near, far = named("near", sass="80"), named("far", sass="80", cuda="12.8")
    request = make_request(cuda_major=13)
    assert [m for m, _ in choose(request, [far, near]).rejected] == [near, far]


manifests = st.builds(
    lambda number, units, features, sass, driver, libc, size, cuda: named(
        str(number),
        selection=make_selection(*units, features=" ".join(features)),
        sass=sass,
        driver_floor=Version(driver),
        libc_floor=Version(libc),
        size=size,
        cuda=cuda,
    ),
    st.integers(0, 1000),
    st.sets(st.sampled_from([make_unit(), make_unit("bwd"), make_unit(head_dim=128)]), min_size=1),
    st.sets(st.sampled_from(["dropout", "softcap"])),
    st.sampled_from(["80", "86", "90", "80,90", "80,86,90,120"]),
    st.sampled_from(["525.60", "580.65"]),
    st.sampled_from(["2.17", "2.38"]),
    st.integers(1, 3),
    st.sampled_from(["12.8", "13.0"]),
)
requests = st.builds(
    lambda units, features, gpus, driver, cuda: make_request(
        selection=make_selection(*units, features=" ".join(features)),
        gpus=architectures(gpus),
        driver=Version(driver) if driver else None,
        cuda_major=cuda,
    ),
    st.sets(st.sampled_from([make_unit(), make_unit("bwd")]), min_size=1),
    st.sets(st.sampled_from(["softcap"])),
    st.sampled_from(["80", "86", "90", "80,90"]),
    st.sampled_from([None, "550.54", "580.95"]),
    st.sampled_from([None, 12, 13]),
)


@given(requests, st.lists(manifests, max_size=8, unique_by=lambda m: m.recipe_key), st.randoms(use_true_random=False))
def test_a_choice_is_fit_and_complete(request, stored, shuffler):
    choice = choose(request, stored)
    fitting = [m for m in stored if not unmet(request, m)]
    if choice.taken is None:
        assert not fitting
    else:
        code = [len(m.selection.units) * len(m.sass) for m in fitting]
        assert choice.taken == fitting[code.index(min(code))], "the first of those with the least code"
    assert all(reasons == unmet(request, m) and reasons for m, reasons in choice.rejected)
    assert len(choice.rejected) == len(stored) - len(fitting)
    shuffled = stored.copy()
    shuffler.shuffle(shuffled)
    assert choose(request, shuffled).rejected == choice.rejected


@pytest.mark.parametrize(
    ("status", "sass", "named"), [("built", (8, 0), False), ("built", (9, 0), True), ("hit", (9, 0), False)]
)
def test_a_new_library_for_hopper_names_the_other_family(status, sass, named) -> None:
    manifest = make_manifest(sass=(Architecture(*sass),))
    page = " ".join(describe(LibraryResult(status, manifest, Path("lib"), 2, 0, 1.0)))
    assert ("--families all" in page) is named
