"""Words become values and values words: versions, architectures, selections, names of wheels."""

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from flashdepot.catalog import load_catalog
from flashdepot.errors import UsageError
from flashdepot.kernels.fa2 import make_unit
from flashdepot.model import selection as s
from flashdepot.model.codec import read
from flashdepot.model.selection import Feature, Pass, Selection, Unit, select
from flashdepot.model.target import Architecture
from flashdepot.model.wheel import BuiltFor, WheelName, filename_of_url, version_key

NAMES = {
    "flash_attn-2.6.3+cu118torch2.0cxx11abiFALSE-cp310-cp310-linux_x86_64.whl": ("flash-attn", "11.8", "2.0", False),
    "flash_attn-2.8.3.post1+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl": ("flash-attn", "12", "2.8", True),
    "flash_attn-2.8.3+cu130torch2.11-cp313-cp313t-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl": (
        "flash-attn", "13.0", "2.11", None,
    ),
    "flash_attn-2.7.4+cu124torch2.6.0cxx11abiFALSE-cp310-cp310-win_amd64.whl": ("flash-attn", "12.4", "2.6.0", False),
    "flash_attn-2.6.3+cu128.torch271-cp310-cp310-linux_x86_64.whl": ("flash-attn", "12.8", "2.7.1", None),
    "flash_attn-2.8.1+cu128.torch27-cp310-cp310-linux_aarch64.whl": ("flash-attn", "12.8", "2.7", None),
    "flash_attn_3_nv-1.0.3+cu130.torch210-cp39-abi3-linux_x86_64.whl": ("flash-attn-3-nv", "13.0", "2.10", None),
    "flash_attn_3-3.0.0+cu128torch2.10gite2743ab-cp39-abi3-win_amd64.whl": ("flash-attn-3", "12.8", "2.10", None),
    "flash_attn_3-3.0.0b1+cu128.torch27-cp39-abi3-linux_x86_64.whl": ("flash-attn-3", "12.8", "2.7", None),
    "flash_attn_3-3.0.0+20260318.cu128torch2100cxx11abitrue.8afc61-cp39-abi3-win_amd64.whl": (
        "flash-attn-3", "12.8", "2.10.0", True,
    ),
    "flash_attn-2.8.4+d20260328cu130torch2.11.0cxx11abiTRUE-cp314-cp314-win_amd64.whl": (
        "flash-attn", "13.0", "2.11.0", True,
    ),
    "flash_attn-2.8.3+d20260121.cu130torch2.10.0cxx11abiTRUE-cp312-cp312-win_amd64.whl": (
        "flash-attn", "13.0", "2.10.0", True,
    ),
    "flash_attn-2.8.3-1local-cp312-cp312-linux_x86_64.whl": ("flash-attn", "", "", None),
}  # fmt: skip

LOWER, LETTERS, DIGITS = string.ascii_lowercase, string.ascii_letters, string.digits


PARTS = st.tuples(
    st.sampled_from(["", "1!"]),
    st.sampled_from(["2", "2.8", "2.8.0", "2.8.3", "2.10", "3.0.0"]),
    st.sampled_from(["", "a1", "b1", "b2", "rc1"]),
    st.sampled_from(["", ".post1", ".post2", ".post10"]),
    st.sampled_from(["", ".dev0", ".dev3"]),
)


def word(characters: str, most: int, first: str = "") -> st.SearchStrategy[str]:
    """Text of such characters, which begins with one of ``first``."""
    return st.builds(str.__add__, st.sampled_from(first or characters), st.text(characters, max_size=most - 1))


tags = st.lists(word(f"{LOWER}{DIGITS}_", 10, LOWER), min_size=1, max_size=2, unique=True)
parts = st.lists(word(LETTERS + DIGITS, 4), max_size=2)
names = st.builds(
    WheelName,
    distribution=st.builds(lambda first, more: "_".join([first, *more]), word(LETTERS + DIGITS, 6, LETTERS), parts),
    version=PARTS.map("".join).filter(lambda version: "!" not in version),
    local=st.lists(word(LETTERS + DIGITS, 6), max_size=3).map(".".join),
    build=st.one_of(st.just(""), word(LETTERS + DIGITS, 4, DIGITS)),
    python=tags.map(".".join),
    abi=tags.map(".".join),
    platform=tags.map(".".join),
)


@pytest.mark.parametrize("name", NAMES)
def test_every_publishers_names_are_understood(name):
    parsed = WheelName.parse(name)
    built = parsed.built_for
    assert (parsed.canonical, built.cuda, built.torch, built.cxx11_abi) == NAMES[name]
    assert str(parsed) == name


@given(names)
def test_a_name_comes_back_as_it_was_and_means_what_pip_understands(name):
    assert WheelName.parse(str(name)) == name
    distribution, version, build, found = parse_wheel_filename(str(name))
    assert distribution == name.canonical
    assert version == Version(f"{name.version}+{name.local}" if name.local else name.version)
    assert "".join(map(str, build)) == re.sub(r"^0+(?=\d)", "", name.build)  # which begins with a number
    assert {str(tag) for tag in found} == {
        f"{python}-{abi}-{platform}"
        for python in name.python.split(".")
        for abi in name.abi.split(".")
        for platform in name.platform.split(".")
    }


@pytest.mark.parametrize(
    "name",
    [
        "",
        "flash_attn-2.8.3.tar.gz",
        "flash_attn-2.8.3-cp312-cp312.whl",
        "../flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
        "a/flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
        "..\\flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
        "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl\n",
        "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl\0",
        "flash_attn-two-cp312-cp312-linux_x86_64.whl",
        "flash_attn-2.8.3+-cp312-cp312-linux_x86_64.whl",
        "flash_attn-2.8.3%2Bcu12-cp312-cp312-linux_x86_64.whl",
        f"flash_attn-2.8.3+{'a' * 300}-cp312-cp312-linux_x86_64.whl",
    ],
)
def test_what_is_not_the_name_of_a_wheel_is_refused(name):
    with pytest.raises(UsageError, match="is not the name of a wheel"):
        WheelName.parse(name)


@pytest.mark.parametrize(
    ("local", "torch"),
    [
        ("cu128.torch27", "2.7"),
        ("cu128.torch271", "2.7.1"),
        ("cu126.torch260", "2.6.0"),
        ("cu128.torch210", "2.10"),
        ("cu128.torch2100", "2.10.0"),
        ("cu130.torch2131", "2.13.1"),
        ("cu130.torch211", "2.11"),
        ("cu121.torch211", "2.1.1"),
        ("cu118.torch210", "2.1.0"),
        ("cu118.torch21", "2.1"),
        ("cu116torch1.12", "1.12"),
        ("cu117torch113", "1.13"),
        ("cu12", ""),
    ],
)
def test_digits_without_dots_are_separated_by_the_rules_that_are_stated(local, torch):
    assert BuiltFor.parse(local).torch == torch


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a/flash_attn-2.8.3+cu12-cp312-cp312-win_amd64.whl",
        "https://example.org/a/flash_attn-2.8.3%2Bcu12-cp312-cp312-win_amd64.whl?download=true",
        "https://example.org/a/flash_attn-2.8.3%2bcu12-cp312-cp312-win_amd64.whl#sha256=00",
    ],
)
def test_a_url_leads_to_the_name_of_its_file(url):
    assert filename_of_url(url) == "flash_attn-2.8.3+cu12-cp312-cp312-win_amd64.whl"


@pytest.mark.parametrize("text", ["90", "9.0", "sm_90", "compute_90", " SM_90 "])
def test_a_compute_capability_reads_in_every_spelling_of_the_field(text) -> None:
    assert Architecture.parse(text) == Architecture(9, 0)


def test_two_digit_generations_are_not_mistaken_for_one_digit_ones() -> None:
    assert Architecture.parse("120") == Architecture(12, 0)
    assert Architecture.parse("12.1").sm == "sm_121"
    assert Architecture.parse("90a") == Architecture(9, 0, "a")


@pytest.mark.parametrize("text", ["", "9", "hopper", "9.0.1", "sm_", "-90", "90b"])
def test_an_unknown_architecture_is_refused_with_examples(text) -> None:
    with pytest.raises(UsageError, match="expected a compute capability such as"):
        Architecture.parse(text)


@pytest.mark.parametrize(
    ("sass", "gpu", "runs"),
    [
        ("80", "8.0", True),
        ("80", "8.6", True),
        ("80", "8.9", True),
        ("86", "8.0", False),
        ("89", "8.6", False),
        ("80", "9.0", False),
        ("90", "9.0", True),
        ("90", "10.0", False),
        ("100", "10.3", True),
        ("103", "10.0", False),
        ("120", "12.1", True),
        ("100", "12.0", False),
        ("90a", "9.0", True),
        ("100a", "10.3", False),
        ("100f", "10.3", True),
    ],
)
def test_machine_code_runs_on_its_own_generation_from_its_minor_version_on(sass, gpu, runs) -> None:
    assert Architecture.parse(sass).runs_on(Architecture.parse(gpu)) is runs


def tree(head_dims: tuple[int, ...] = (32, 64, 96, 128, 192, 256)) -> frozenset[Unit]:
    return frozenset(
        make_unit(p, d, t, causal=c) for p in Pass for d in head_dims for t in s.HALVES for c in (False, True)
    )


def test_profiles_choose_what_their_documentation_says() -> None:
    count = {name: len(select(profile, tree()).units) for name, profile in s.PROFILES.items()}
    assert count == {"full": 72, "training": 48, "inference": 48, "quick": 2}
    assert select(s.PROFILES["quick"], tree()).features == frozenset()
    assert Feature.DROPOUT not in select(s.PROFILES["inference"], tree()).features


def test_a_head_dim_that_upstream_lacks_is_refused_with_the_one_that_serves_it() -> None:
    profile = s.Profile(None, s.parse_head_dims("64,80"), None, frozenset())
    with pytest.raises(UsageError, match="no kernels of head dim 80: there are 32, 64") as caught:
        select(profile, tree())
    assert "--head-dims 96 --features uneven_k" in caught.value.hint


def test_a_selection_survives_its_json() -> None:
    full = select(s.PROFILES["inference"], tree())
    assert read(full.to_json(), Selection) == full


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (s.parse_passes, "fwd,sideways", "'sideways' is not a pass: there are fwd, splitkv, bwd"),
        (s.parse_dtypes, "fp8", "'fp8' is not a dtype: there are bf16, fp16"),
        (s.parse_features, "dropout,rotary", "'rotary' is not a feature"),
        (s.parse_profile, "fast", "'fast' is not a profile: there are full"),
        (s.parse_head_dims, "64,big", "'big' is not a head dim"),
        (s.parse_head_dims, "0", "'0' is not a head dim"),
        (s.parse_passes, "", "empty"),
    ],
)
def test_unknown_words_are_refused_with_the_known_ones(parse, text, said) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        parse(text)  # type: ignore[operator]


def test_features_can_be_none_or_all() -> None:
    assert s.parse_features("none") == frozenset()
    assert s.parse_features("all") == frozenset(Feature)
    assert s.parse_features("softcap, local") == {Feature.SOFTCAP, Feature.LOCAL}


@settings(max_examples=400, deadline=None)
@given(PARTS.map("".join), PARTS.map("".join))
def test_two_versions_are_ordered_as_packaging_orders_them(one, other) -> None:
    assert (version_key(one) < version_key(other)) == (Version(one) < Version(other))
    assert (version_key(one) == version_key(other)) == (Version(one) == Version(other))


def test_so_are_all_of_the_catalog() -> None:
    versions = {wheel.version for wheel in load_catalog().wheels}
    assert sorted(versions, key=version_key) == sorted(versions, key=Version)
    assert len(versions) > 50


def test_what_cannot_be_read_as_a_version_comes_first() -> None:
    assert version_key("main") < version_key("0.dev0")
