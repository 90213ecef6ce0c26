import zlib

import pytest
from packaging.utils import parse_wheel_filename

from flashdepot.catalog import load_catalog
from flashdepot.catalog.load import SHIPPED, decode, encode
from flashdepot.catalog.published_files import implied_sass
from flashdepot.catalog.refresh import read_sources
from flashdepot.model.wheel import WheelName, filename_of_url


@pytest.fixture(scope="module")
def shipped():
    return load_catalog()


def test_every_name_parses_prints_back_and_is_what_pip_would_read(shipped):
    for wheel in shipped.wheels:
        text = filename_of_url(wheel.url)
        name = WheelName.parse(text)
        assert str(name) == text
        distribution, version, _, tags = parse_wheel_filename(text)
        assert (distribution, version.public) == (wheel.distribution, wheel.version)
        assert (name.python, name.abi, name.platform) == (wheel.python, wheel.abi, wheel.platform)
        assert {tag.platform for tag in tags} == set(wheel.platform.split("."))
        built = name.built_for
        assert (built.cuda, built.torch, built.cxx11_abi) == (wheel.cuda, wheel.torch, wheel.cxx11_abi)
        assert wheel.cuda
        assert wheel.torch


def test_the_machine_code_of_every_wheel_is_what_the_table_implies(shipped):
    official = {collection.name for collection in shipped.collections if collection.kind == "official"}
    for wheel in shipped.wheels:
        name = WheelName.parse(filename_of_url(wheel.url))
        assert wheel.sass == implied_sass(name, official=wheel.source in official)


def test_no_wheel_is_listed_twice(shipped):
    urls = [wheel.url.replace("%2B", "+") for wheel in shipped.wheels]
    assert len(urls) == len(set(urls))


def test_it_has_the_wheels_of_every_source_and_their_urls_are_below_its_files(shipped, tmp_path):
    sources = {source.name: source for source in read_sources(tmp_path)}
    assert {collection.name for collection in shipped.collections} == set(sources)
    assert {wheel.source for wheel in shipped.wheels} == set(sources)
    assert all(wheel.url.startswith(sources[wheel.source].files) for wheel in shipped.wheels)
    for collection in shipped.collections:
        source = sources[collection.name]
        assert (collection.kind, collection.page, collection.licence) == (source.kind, source.page, source.licence)


def test_what_communities_publish_was_seen_to_exist(shipped):
    assert all(wheel.seen for wheel in shipped.wheels if wheel.source != "official")


def test_what_is_known_of_a_wheel_is_all_there(shipped):
    name = "flash_attn-2.8.3+cu126torch2.13-cp312-cp312-win_amd64.whl"
    place = "https://github.com/mjun0812/flash-attention-prebuild-wheels/releases/download/v0.9.52/"
    (wheel,) = (w for w in shipped.wheels if w.url == place + name)
    assert wheel == (
        "flash-attn", "2.8.3", "12.6", "2.13", None, "cp312", "cp312", "win_amd64", "mjun0812", place + name,
        114_581_437, "51e15c8f887d07b1c99dfd653f8c1ea6c2c829ab75212863683348bc902df8da", True, ("80", "90"), "",
    )  # fmt: skip


def test_it_is_small_and_encoding_it_again_gives_the_same(shipped):
    data = SHIPPED.read_bytes()
    assert len(data) < 300_000
    assert zlib.decompress(encode(decode(data, name="shipped"))) == zlib.decompress(data)
