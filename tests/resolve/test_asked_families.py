"""Which families of kernels a request asks for, and what serves it."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.fit.requests import unmet
from flashdepot.kernels import fa4, family_of, untested_code
from flashdepot.link.vendor_check import expected, rebuild_command
from flashdepot.model.limits import joined
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import LibraryRequest, Need, Request
from flashdepot.model.selection import Pass, Selection
from flashdepot.resolve.library import resolve_library
from flashdepot.resolve.project import library_request, read_project
from support.depots import make_manifest
from support.toolkits import make_host
from support.upstreams import make_folder


@pytest.fixture(autouse=True)
def _any_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fa4, "PYTHONS", {sys.version_info[:2]})


def need_of(tmp_path: Path, **words: str) -> Need:
    return resolve_library(library_request(**{"arch": "90", **words}), make_host(), Depot(tmp_path / "depot"))


def manifest_for(request: Request, *families: str) -> Manifest:
    units = frozenset(unit for unit in request.selection.units if unit.family in families)
    return make_manifest(
        selection=Selection(units, request.selection.features),
        upstreams={family: family_of(family).sources.find_sdist(version(family)).identified.id for family in families},
        sass=request.gpus,
    )


def version(family: str) -> str:
    return family_of(family).sources.default_version()


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ({"arch": "90"}, ("fa2", "fa4")),
        ({"arch": "universal"}, ("fa2", "fa4")),
        ({"arch": "80,90", "profile": "full", "upstream": "2.7.4.post1"}, ("fa2", "fa4")),
        ({"arch": "90", "target": "linux-aarch64"}, ("fa2", "fa4")),
        ({"arch": "90", "target": "windows-x86_64"}, ("fa2", "fa4")),
        ({"arch": "80"}, ("fa2",)),
        ({"arch": "100,120"}, ("fa2",)),
        ({"arch": "native"}, ("fa2",)),
        ({"arch": "90", "cuda": "12.4"}, ("fa2",)),
        ({"arch": "90", "profile": "quick"}, ("fa2",)),
        ({"arch": "90", "profile": "inference"}, ("fa2",)),
        ({"arch": "90", "profile": "full", "head_dims": "128"}, ("fa2",)),
        ({"arch": "90", "dtypes": "bf16"}, ("fa2",)),
        ({"arch": "90", "features": "none"}, ("fa2",)),
        ({"arch": "90", "passes": "fwd"}, ("fa2",)),
    ],
)
def test_full_has_both_families_where_both_are_tested_and_less_than_full_has_fa2(tmp_path, words, taken) -> None:
    need = need_of(tmp_path, **words)
    assert need.request.selection.families == taken
    assert set(need.sources) == set(need.request.upstreams) == {*taken}
    assert need.sources["fa2"] == words.get("upstream", version("fa2"))
    assert need.note.endswith("left out.") is False


@pytest.mark.parametrize(("driver", "taken"), [("535.54", ("fa2",)), ("580.65", ("fa2", "fa4"))])
def test_a_driver_that_does_not_load_its_code_gets_no_fa4_that_nobody_named(tmp_path, driver, taken) -> None:
    host, depot = make_host(driver=driver), Depot(tmp_path / "depot")
    assert resolve_library(library_request(arch="90"), host, depot).request.selection.families == taken
    named = library_request(arch="90", families="all")
    assert resolve_library(named, host, depot).request.selection.families == ("fa2", "fa4")


def test_a_python_that_does_not_run_its_compiler_gets_no_fa4_that_nobody_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fa4, "PYTHONS", frozenset())
    need = need_of(tmp_path)
    assert need.request.selection.families == ("fa2",)
    assert "FlashAttention-4 is left out: it cannot be compiled by this Python on linux-x86_64." in need.note
    assert need_of(tmp_path, families="all").request.selection.families == ("fa2", "fa4")


def test_a_changed_source_is_built_by_itself(tmp_path) -> None:
    need = need_of(tmp_path, upstream=str(make_folder(tmp_path / "tree")))
    assert need.request.selection.families == ("fa2",)


@pytest.mark.parametrize(
    ("families", "arch", "taken"),
    [
        ("fa2", "90", ("fa2",)),
        ("fa4", "90", ("fa4",)),
        ("all", "90", ("fa2", "fa4")),
        ("FA4, fa2", "90", ("fa2", "fa4")),
        ("all", "80,90", ("fa2", "fa4")),
        ("all", "universal", ("fa2", "fa4")),
    ],
)
def test_families_that_are_named_are_asked_for(tmp_path, families, arch, taken) -> None:
    need = need_of(tmp_path, families=families, arch=arch)
    assert need.request.selection.families == taken
    assert {family: upstream.version for family, upstream in need.request.upstreams.items()} == {
        family: version(family) for family in taken
    }
    assert "left out" not in need.note


def test_a_family_without_kernels_for_any_of_the_gpus_is_left_out_and_that_is_said(tmp_path) -> None:
    need = need_of(tmp_path, families="all", arch="80,89")
    assert need.request.selection.families == ("fa2",)
    assert (
        "FlashAttention-4 is left out: it has kernels for compute capability 9.0, 10.0, 11.0, 12.0, and not for 8.0."
        in need.note
    )


@pytest.mark.parametrize(
    ("arch", "named"), [("90,100", "10.0"), ("universal", "10.0, 12.0"), ("90,103,121", "10.3, 12.1")]
)
def test_untested_kernels_are_for_those_who_name_the_family(tmp_path, arch, named) -> None:
    asked = need_of(tmp_path, families="all", arch=arch)
    assert f"FlashAttention-4 for compute capability {named} is untested" in asked.note
    unasked = need_of(tmp_path, arch=arch)
    assert "untested" not in unasked.note
    assert unasked.request.selection == need_of(tmp_path, families="all", arch="80,90").request.selection
    assert unasked.request.selection.units < asked.request.selection.units
    assert [a.dotted for a in untested_code(asked.request.selection, asked.request.gpus)["fa4"]] == named.split(", ")
    assert untested_code(unasked.request.selection, unasked.request.gpus) == {}


def test_datacenter_blackwell_gets_the_kernels_that_there_are_for_it(tmp_path) -> None:
    units = {
        arch: need_of(tmp_path, families="fa4", arch=arch).request.selection.units for arch in ("100", "103", "110")
    }
    assert units["100"] == units["103"]
    assert {unit.name.partition("_")[0] for unit in units["110"]} == {"sm110f"}
    assert {unit.head_dim for unit in units["100"] if unit.pass_ is Pass.FWD} == {64, 96, 128, 256}
    assert {unit.head_dim for unit in units["100"] if unit.pass_ is Pass.BWD} == {64, 96, 128}
    with pytest.raises(UsageError, match="192"):
        need_of(tmp_path, families="fa4", arch="100", head_dims="192")


def test_consumer_blackwell_gets_only_the_kernels_that_there_are_for_it(tmp_path) -> None:
    need = need_of(tmp_path, families="all", arch="90,120")
    assert "FlashAttention-4 for compute capability 12.0 is untested" in need.note
    assert "9.0 is untested" not in need.note
    units = need_of(tmp_path, families="all", arch="120").request.selection.units
    assert len([unit for unit in units if unit.family == "fa4"]) == 108
    assert need_of(tmp_path, families="all", arch="120", passes="bwd").request.selection.families == ("fa2",)
    with pytest.raises(UsageError, match="256"):
        need_of(tmp_path, families="fa4", arch="120", head_dims="256")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"arch": "80"}, "FlashAttention-4 has kernels for compute capability 9.0, 10.0, 11.0, 12.0, and not for 8.0"),
        ({"arch": "80,90"}, "compute capability 8.0"),
    ],
)
def test_a_gpu_that_no_family_asked_for_serves_is_refused(tmp_path, words, reason) -> None:
    with pytest.raises(IncompatibleError, match="There are no kernels for compute capability") as refused:
        need_of(tmp_path, families="fa4", **words)
    assert reason in refused.value.message
    assert "--families fa2" in refused.value.hint


@pytest.mark.parametrize("name", ["fa5", "fa", ""])
def test_a_family_that_is_not_there_is_refused_with_those_that_are(name) -> None:
    with pytest.raises(UsageError) as refused:
        library_request(families=name)
    assert "--families" in refused.value.hint
    assert not name or "there are fa2, fa3, fa4" in refused.value.message


def test_fa3_is_there_only_where_it_is_named(tmp_path) -> None:
    assert "fa3" not in need_of(tmp_path, families="all", arch="90").request.selection.families
    named = need_of(tmp_path, families="all,fa3", arch="80,90")
    assert named.request.selection.families == ("fa2", "fa3", "fa4")
    assert need_of(tmp_path, families="fa3", arch="90", dtypes="e4m3", head_dims="128").request.selection.families == (
        "fa3",
    )
    with pytest.raises(IncompatibleError, match=r"has kernels for compute capability 9\.0 only"):
        need_of(tmp_path, families="fa3", arch="80")


def test_the_source_that_is_named_is_that_of_the_family(tmp_path) -> None:
    assert need_of(tmp_path, families="fa4", upstream="4.0.0b36").sources == {"fa4": "4.0.0b36"}
    assert need_of(tmp_path, families="all", upstream="2.7.4.post1").sources["fa2"] == "2.7.4.post1"
    with pytest.raises(UsageError, match="flash-attn-4"):
        need_of(tmp_path, families="fa4", upstream="2.8.3")


def test_a_library_with_kernels_that_nobody_asked_for_does_not_serve(tmp_path) -> None:
    default, both = (need_of(tmp_path, families=word).request for word in ("fa2", "all"))
    two = manifest_for(both, "fa2", "fa4")
    assert "has kernels of fa4 too, which were not asked for (--families all)" in unmet(default, two)
    assert unmet(both, two) == ()
    assert unmet(default, manifest_for(both, "fa2")) == ()
    assert "lacks the family fa4" in unmet(both, manifest_for(both, "fa2"))


def test_a_wheel_is_not_made_of_a_family_without_a_python_package(tmp_path) -> None:
    depot = Depot(tmp_path / "depot")
    with pytest.raises(UsageError, match="A wheel cannot have only fa4") as refused:
        resolve_library(library_request(families="fa4", arch="90"), make_host(), depot, for_wheel=True)
    assert refused.value.hint == "Ask for both: --families all"
    need = resolve_library(library_request(families="all", arch="90"), make_host(), depot, for_wheel=True)
    assert need.request.selection.families == ("fa2", "fa4")


def test_a_project_file_names_families_in_the_words_of_the_command_line(tmp_path) -> None:
    (tmp_path / "flashdepot.toml").write_text('families = ["fa2", "fa4"]\n')
    asked = read_project(tmp_path / "flashdepot.toml").asked
    assert asked.families == {"fa2", "fa4"}
    assert library_request(**asked.words()) == asked


def test_a_vendored_library_of_two_families_is_asked_for_again_by_name(tmp_path) -> None:
    both = need_of(tmp_path, families="all").request
    manifest = manifest_for(both, "fa2", "fa4")
    again = rebuild_command("vendored", manifest, LibraryRequest(), {})
    assert f"--families {joined(['fa2,fa4'])}" in again
    assert f"--upstream {manifest.upstream.version}" in again
    host, depot = make_host(), Depot(tmp_path / "depot")
    assert unmet(replace(expected(manifest, LibraryRequest(), host, depot), driver=None), manifest) == ()
    asked = expected(manifest, library_request(families="fa2"), host, depot)
    assert any("fa4 too" in reason for reason in unmet(asked, manifest))


def test_a_vendored_library_is_checked_without_the_compiler_that_made_it(tmp_path) -> None:
    request = need_of(tmp_path, families="fa2").request
    asked = LibraryRequest(cuda=tmp_path / "nowhere" / "cuda")
    found = expected(manifest_for(request, "fa2"), asked, make_host(), Depot(tmp_path / "depot"))
    assert (found.selection, found.cuda_major) == (request.selection, None)
