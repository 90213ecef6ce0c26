"""Listings of wheels: packed, shipped, refreshed, and the machine code that a name implies."""

import json
import zlib

import pytest
from packaging.utils import parse_wheel_filename

from catalog.listing_server import wheel_name
from flashdepot.catalog import Collection, Listing, load_catalog
from flashdepot.catalog.load import SHIPPED, decode, encode, refreshed_path
from flashdepot.catalog.published_files import PublishedFile, implied_sass, to_wheels
from flashdepot.catalog.refresh import read_sources
from flashdepot.errors import IntegrityError
from flashdepot.files.disk import write_atomic
from flashdepot.model.wheel import WheelName, filename_of_url

COLLECTION = Collection("ours", "community", "https://example.org/", "", "2026-01-02T03:04:05Z")
URLS = [
    "https://example.org/a/flash_attn-2.8.3+cu128torch2.8-cp312-cp312-linux_x86_64.whl",
    "https://example.org/a/flash_attn-2.8.3%2Bcu128torch2.8-cp313-cp313t-win_amd64.whl?download=true",
    "https://example.org/b/flash_attn-2.8.3%2bcu128.torch210-cp39-abi3-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "https://example.org/flash_attn-2.8.3-1-cp312-cp312-linux_aarch64.whl",
    "file:///srv/wheels/Flash.Attn_3-3.0.0b1-py3-none-any.whl",
]


def listing(*urls):
    files = [PublishedFile(url.rpartition("/")[2], url, 5 * n, "ab" * 32 if n else "") for n, url in enumerate(urls)]
    return Listing(COLLECTION, to_wheels(files, source="ours", official=False))


def test_a_listing_comes_back_with_every_url_as_it_was():
    original = listing(*URLS)
    assert sorted(wheel.url for wheel in original.wheels) == sorted(URLS)
    assert decode(encode([original]), name="it") == [original]


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_that_is_listed_under_two_spellings_is_one_wheel(order):
    name = "flash_attn-2.8.3+cu128torch2.8-cp312-cp312-linux_x86_64.whl"
    encoded = name.replace("+", "%2B")
    place = "https://example.org/a/"
    plain, better = PublishedFile(name, place + name, 0, ""), PublishedFile(name, place + encoded, 0, "")
    known = PublishedFile(name, place + name, 5, "ab" * 32)

    def kept(*files):
        return [wheel.url for wheel in to_wheels(files[::order], source="ours", official=False)]

    assert kept(plain, better) == [place + encoded]
    assert kept(known, better) == [place + name]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d[:-9],
        lambda d: d[:40] + b"\0" + d[41:],
        lambda _: b"",
        lambda _: b"{}",
        lambda _: zlib.compress(b"[" * 100_000),
        lambda _: zlib.compress(b" " * (65 << 20)),
    ],
)
def test_damaged_bytes_are_an_error(change):
    with pytest.raises(IntegrityError, match="the file is damaged"):
        decode(change(encode([listing(*URLS)])), name="the file")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("collection", {}),
        ("wheels", 5),
        ("wheels", [["flash-attn"]]),
        ("wheels", [["flash-attn", "2.8.3", "", "", None, "py3", "none", "any", "ours", "", "large"]]),
    ],
)
def test_a_document_of_another_shape_is_an_error(key, value):
    document = json.loads(zlib.decompress(encode([listing(*URLS[1:2])])))
    document["listings"][0][key] = value
    with pytest.raises(IntegrityError, match="the file is damaged"):
        decode(zlib.compress(json.dumps(document).encode()), name="the file")


def test_another_version_of_the_format_is_named():
    with pytest.raises(IntegrityError, match="has the format 99, expected 2"):
        decode(zlib.compress(b'{"schema": 99}'), name="the file")


KNOWN = load_catalog()


@pytest.fixture
def refreshed(tmp_path):
    """Write a listing of one wheel, as a refresh leaves it."""

    def write(source, listed):
        url = f"https://example.org/{wheel_name()}"
        wheels = to_wheels([PublishedFile(wheel_name(), url, 0, "")], source=source, official=False)
        collection = Collection(source, "community", "https://example.org/", "", listed)
        path = refreshed_path(tmp_path, source)
        write_atomic(path, encode([Listing(collection, wheels)]))
        return path

    return write


def wheels_of(catalog, source):
    return sum(wheel.source == source for wheel in catalog.wheels)


@pytest.mark.parametrize(("listed", "newer"), [("2001-01-01T00:00:00Z", False), ("2101-01-01T00:00:00Z", True)])
def test_of_the_shipped_and_the_refreshed_listing_the_newer_counts(refreshed, tmp_path, listed, newer):
    refreshed("wildminder", listed)
    catalog = load_catalog(tmp_path)
    assert wheels_of(catalog, "wildminder") == (1 if newer else wheels_of(KNOWN, "wildminder"))
    assert wheels_of(catalog, "mjun0812") == wheels_of(KNOWN, "mjun0812")
    assert [c.name for c in catalog.collections].count("wildminder") == 1


def test_a_source_that_is_not_shipped_is_added(refreshed, tmp_path):
    refreshed("ours", "2001-01-01T00:00:00Z")
    assert wheels_of(load_catalog(tmp_path), "ours") == 1


def test_a_damaged_listing_is_moved_aside_with_a_note_and_the_shipped_one_is_used(refreshed, tmp_path):
    path = refreshed("wildminder", "2101-01-01T00:00:00Z")
    path.write_bytes(path.read_bytes()[:-20])
    catalog = load_catalog(tmp_path)
    assert wheels_of(catalog, "wildminder") == wheels_of(KNOWN, "wildminder") > 1
    (note,) = catalog.notes
    assert "wildminder.json.z is damaged" in note
    assert "flashdepot catalog update" in note
    assert [p.name for p in path.parent.iterdir()] == ["wildminder.json.damaged"]
    assert load_catalog(tmp_path).notes == ()


def test_a_listing_that_cannot_be_read_is_noted_and_left(tmp_path):
    refreshed_path(tmp_path, "wildminder").mkdir(parents=True)
    catalog = load_catalog(tmp_path)
    assert "cannot be read: " in catalog.notes[0]
    assert wheels_of(catalog, "wildminder") == wheels_of(KNOWN, "wildminder") > 1


def test_a_depot_that_was_never_refreshed_has_the_shipped_catalog(tmp_path):
    assert load_catalog(tmp_path / "nothing") == load_catalog()


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


@pytest.mark.parametrize(
    ("start", "official", "sass"),
    [
        ("flash_attn-2.8.3+cu126torch2.8", False, ("80", "90")),
        ("flash_attn-2.8.3+cu128torch2.8", False, ("80", "90", "100", "120")),
        ("flash_attn-2.8.3+cu130torch2.9", False, ("80", "90", "100", "120")),
        ("flash_attn-2.7.2.post1+cu129torch2.8", False, ("80", "90")),
        ("flash_attn-2.7.3+cu128.torch27", False, ("80", "90", "100", "120")),
        ("flash_attn-2.6.3+cu118torch2.4cxx11abiTRUE", True, ("80", "90")),
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE", True, ("80", "90", "100", "120")),
        ("flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE", True, ("80", "90")),
        ("flash_attn-2.7.3+cu11torch2.5cxx11abiFALSE", True, ("80", "90")),
        ("flash_attn-1.0.9+cu121torch2.1", False, ("75", "80", "90")),
        ("flash_attn_3-3.0.0+cu128torch2.9gite2743ab", False, ("80", "90a")),
    ],
)
def test_version_and_nvcc_imply_the_machine_code(start, official, sass):
    assert implied_sass(WheelName.parse(f"{start}-cp312-cp312-linux_x86_64.whl"), official=official) == sass


@pytest.mark.parametrize(
    ("start", "official"),
    [
        ("flash_attn-2.8.3+cu12torch2.8", False),  # another publisher's 12 is any 12
        ("flash_attn-2.8.4+cu130torch2.11", False),  # a version that nobody has read
        ("flash_attn-2.0.6+cu118torch2.0cxx11abiTRUE", True),
        ("flash_attn-2.8.3", True),
        ("flash_attn-2.8.3+cu117torch2.0", False),
        ("flash_attn_3_nv-1.0.3+cu128.torch210", False),
    ],
)
def test_what_the_table_does_not_have_is_not_guessed(start, official):
    assert implied_sass(WheelName.parse(f"{start}-cp312-cp312-linux_x86_64.whl"), official=official) == ()
