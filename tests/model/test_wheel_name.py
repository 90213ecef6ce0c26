import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from flashdepot.errors import UsageError
from flashdepot.model.wheel import BuiltFor, WheelName, filename_of_url

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

segment = st.from_regex(r"[A-Za-z0-9]{1,6}", fullmatch=True)
tags = st.lists(st.from_regex(r"[a-z][a-z0-9_]{1,9}", fullmatch=True), min_size=1, max_size=2, unique=True)
names = st.builds(
    WheelName,
    distribution=st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,5}(_[A-Za-z0-9]{1,4}){0,2}", fullmatch=True),
    version=st.from_regex(r"[1-9]?[0-9](\.[1-9]?[0-9]){0,2}(b[1-9])?(\.post[1-9])?(\.dev[1-9])?", fullmatch=True),
    local=st.lists(segment, max_size=3).map(".".join),
    build=st.one_of(st.just(""), st.from_regex(r"[1-9][0-9]?[a-z]{0,3}", fullmatch=True)),
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
    assert "".join(map(str, build)) == name.build
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
def test_what_is_no_wheels_name_is_refused(name):
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
