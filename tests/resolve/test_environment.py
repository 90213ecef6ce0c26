"""Facts from a host record, flags in their place, and the words of a request."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from packaging.tags import compatible_tags, cpython_tags

from flashdepot.errors import UsageError
from flashdepot.kernels import oldest_gpu
from flashdepot.model.environment import NO_TORCH, Accelerator, Environment
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.request import AnyCuda, Gpus, LibraryRequest
from flashdepot.model.selection import ALL_FEATURES, PROFILES, Dtype, Feature, Pass
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import Interpreter, platform_of, platform_tag, python_fits
from flashdepot.resolve.facts import NamedFacts, facts_of, override
from flashdepot.resolve.project import library_request
from support.recipes import architectures

RECORDS = Path(__file__).parents[1] / "doctor" / "records"


def record(name: str) -> HostRecord:
    return HostRecord.from_json(json.loads((RECORDS / f"{name}.json").read_text()))


def named(**facts: object) -> Environment:
    return override(Environment(platform=Platform("linux", "x86_64")), NamedFacts(**facts))


def test_a_host_record_tells_all_facts() -> None:
    facts = facts_of(record("ubuntu-24.04-h100"))
    assert (str(facts.platform), facts.libc_name, str(facts.libc)) == ("linux-x86_64", "glibc", "2.39")
    assert (str(facts.python), facts.gpus, str(facts.driver)) == ("cp312", (Architecture(9, 0),), "580.65.06")
    assert facts.torch is not None
    assert (facts.torch.minor, str(facts.torch.cuda), facts.torch.cxx11_abi) == ("2.8", "12.8", True)


def test_a_machine_without_a_python_environment_leaves_python_and_torch_unknown() -> None:
    facts = facts_of(replace(record("ubuntu-24.04-h100"), python=None))
    assert (facts.python, facts.torch) == (None, None)


@pytest.mark.parametrize(
    ("name", "accelerator"), [("torch-rocm", Accelerator.ROCM), ("torch-cpu-only", Accelerator.CPU)]
)
def test_what_a_torch_computes_with_is_read_from_the_record(name, accelerator) -> None:
    torch = facts_of(record(name)).torch
    assert torch is not None
    assert (torch.accelerator, torch.cuda) == (accelerator, None)


def test_the_abi_that_a_record_tells_wins_over_the_table() -> None:
    host = record("ubuntu-24.04-h100")
    assert host.python is not None
    assert host.python.torch is not None
    conda = replace(host.python.torch, version="2.5.1", cuda=Version("12.4"), cxx11_abi=True)
    found = facts_of(replace(host, python=replace(host.python, torch=conda))).torch
    assert found is not None
    assert found.cxx11_abi is True


@pytest.mark.parametrize(
    ("torch", "cuda", "abi"),
    [
        ("2.5.1+cu124", "12.4", False),
        ("2.6.0+cu124", "12.4", False),
        ("2.6.0+cu126", "12.6", True),
        ("2.6.0+cu118", "11.8", False),
        ("2.6.0", "12.4", False),
        ("2.7.0", "12.6", True),
        ("2.9", "12.8", True),
        ("99.0", None, True),
        ("2.8.0+cu128", "12.8", True),
        ("2.8.0a0+5228986c39.nv25.06", None, None),
        ("2.6.0 linux-aarch64", None, True),
        ("2.9 win_amd64", None, None),
    ],
)
def test_a_named_torch_tells_what_its_version_does_and_no_more(torch, cuda, abi) -> None:
    version, _, platform = torch.partition(" ")
    found = named(torch=version, platform=platform or None).torch
    assert found is not None
    assert (str(found.cuda) if found.cuda else None, found.cxx11_abi) == (cuda, abi)


def test_a_flag_takes_the_place_of_the_hosts_fact_and_leaves_the_others() -> None:
    facts = override(facts_of(record("ubuntu-24.04-h100")), NamedFacts(gpu=("12.0", "8.0"), driver="550.54"))
    assert facts.gpus == architectures("80,120")
    assert (str(facts.driver), str(facts.python)) == ("550.54", "cp312")


def test_a_named_cuda_or_abi_changes_only_that_of_the_hosts_torch() -> None:
    torch = override(facts_of(record("ubuntu-24.04-h100")), NamedFacts(torch_cuda="12.6", cxx11_abi=False)).torch
    assert torch is not None
    assert (torch.minor, str(torch.cuda), torch.cxx11_abi) == ("2.8", "12.6", False)


def test_the_c_library_of_another_platform_is_forgotten() -> None:
    facts = override(facts_of(record("ubuntu-24.04-h100")), NamedFacts(platform="linux-aarch64"))
    assert (facts.libc, facts.libc_name) == (None, None)


@pytest.mark.parametrize(
    ("text", "platform", "libc_name", "libc"),
    [
        ("manylinux_2_28_x86_64", "linux-x86_64", "glibc", "2.28"),
        ("manylinux2014_aarch64", "linux-aarch64", "glibc", "2.17"),
        ("musllinux_1_2_x86_64", "linux-x86_64", "musl", "None"),
        ("win_amd64", "windows-x86_64", "", "None"),
        ("linux-aarch64", "linux-aarch64", None, "None"),
    ],
)
def test_a_platform_is_named_by_itself_or_by_a_tag(text, platform, libc_name, libc) -> None:
    facts = override(Environment(), NamedFacts(platform=text))
    assert (str(facts.platform), facts.libc_name, str(facts.libc)) == (platform, libc_name, libc)


def test_no_torch_is_known_by_its_name() -> None:
    assert named(torch="none").torch == NO_TORCH


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("torch", "latest"),
        ("torch_cuda", "cu128"),
        ("python_tag", "312"),
        ("platform", "plan9-x86_64"),
        ("platform", "linux"),
        ("glibc", "new"),
        ("gpu", ("RTX",)),
        ("gpu", ("90a",)),
        ("driver", "R580"),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_named(fact, value) -> None:
    with pytest.raises(UsageError) as caught:
        named(**{"torch": "2.8.0", fact: value})
    assert str(value[0] if isinstance(value, tuple) else value) in caught.value.message


def test_each_fact_says_where_it_comes_from() -> None:
    facts = override(facts_of(record("ubuntu-24.04-h100"), recorded=True), NamedFacts(torch="2.9", driver="570"))
    origins = {fact: facts.origin_of(fact) for fact in ("torch", "cuda", "driver", "gpus")}
    pypi = "PyPI's build of that torch"
    assert origins == {"torch": "--torch", "cuda": pypi, "driver": "--driver", "gpus": "record"}
    assert facts_of(record("ubuntu-24.04-h100")).origin_of("gpus") == "probed"


def test_cuda_without_a_torch_is_refused() -> None:
    with pytest.raises(UsageError, match="none is named or found"):
        named(torch_cuda="12.8")


@pytest.mark.parametrize("text", ["cp312", "cp313t", "pp310", "cp39"])
def test_an_interpreters_tag_reads_back(text) -> None:
    assert str(Interpreter.parse(text)) == text


@pytest.mark.parametrize("python", ["cp39", "cp310", "cp312", "cp313", "cp313t", "cp314t", "pp310"])
def test_an_interpreter_takes_the_tags_that_packaging_says(python) -> None:
    found = Interpreter.parse(python)
    tags = set(compatible_tags(found.version, python, ["any"]))
    if found.implementation == "cpython":
        tags |= set(cpython_tags(found.version, [python], ["any"]))
    pythons = [f"{kind}{number}" for kind in ("cp3", "py3", "pp3") for number in range(20)]
    pythons += ["py3", "py2", "cp313t", "cp314t"]
    abis = ["none", "abi3", "cp39", "cp310", "cp312", "cp313", "cp313t", "cp314t"]
    taken = {(tag, abi) for tag in pythons for abi in abis if python_fits(tag, abi, found)}
    expected = {(tag.interpreter, tag.abi) for tag in tags if not tag.abi.startswith("abi3t")}
    if found.implementation == "pypy":
        expected |= {(python, abi) for abi in abis}  # its ABI is not known
    assert taken == expected


@pytest.mark.parametrize("tag", ["manylinux_2_35_x86_64", "linux_aarch64", "win_amd64", "win_arm64"])
def test_a_platform_tag_is_of_the_platform_that_it_is_made_for(tag) -> None:
    platform = platform_of(tag)
    assert platform is not None
    assert platform_tag(platform, Version("2.35") if tag.startswith("many") else None) == tag


def test_a_gpu_too_old_for_the_kernels_need_not_be_served_next_to_another() -> None:
    assert Environment(gpus=architectures("75,80")).served(oldest_gpu()) == architectures("80")
    assert Environment(gpus=architectures("75")).served(oldest_gpu()) == architectures("75")


def test_two_gpus_of_a_kind_are_one_fact() -> None:
    h100 = Gpu("NVIDIA H100", Architecture(9, 0), 80 * 10**9)
    assert facts_of(replace(record("ubuntu-24.04-h100"), gpus=(h100, h100))).gpus == (Architecture(9, 0),)


def some(values: object) -> st.SearchStrategy[frozenset[object]]:
    return st.frozensets(st.sampled_from(list(values)), min_size=1)  # type: ignore[call-overload]


requests = st.builds(
    LibraryRequest,
    upstream=st.none() | st.sampled_from(["2.8.3", "git+https://host/repo@main", "/home/me/flash"]),
    profile=st.none() | st.sampled_from(list(PROFILES.values())),
    arch=st.none()
    | st.sampled_from(list(Gpus))
    | some([Architecture(8, 0), Architecture(9, 0, "a"), Architecture(12, 0)]).map(lambda s: tuple(sorted(s))),
    passes=st.none() | some(Pass),
    head_dims=st.none() | some([32, 64, 256]),
    dtypes=st.none() | some(Dtype),
    features=st.none() | st.frozensets(st.sampled_from(list(Feature))),
    cuda=st.none() | st.sampled_from([AnyCuda.AUTO, Version("12.8"), Path("/opt/cuda")]),
)


@given(requests)
def test_a_request_is_read_again_from_its_words(request) -> None:
    assert library_request(**request.words()) == request


@given(requests, requests)
def test_gaps_are_filled_and_what_was_said_stays(request, other) -> None:
    filled = request.or_else(other)
    for name, value in asdict(request).items():
        assert getattr(filled, name) == (getattr(other, name) if value is None else value)


def test_named_passes_replace_those_of_the_profile() -> None:
    selected = library_request(profile="inference", passes="bwd", features="all").selected
    assert selected.passes == {Pass.BWD}
    assert selected.features == ALL_FEATURES
    assert selected.dtypes == PROFILES["inference"].dtypes
