import json
import zlib

import pytest

from flashdepot.catalog import Collection, Listing
from flashdepot.catalog.load import decode, encode, split_url
from flashdepot.catalog.published_files import PublishedFile, to_wheels
from flashdepot.errors import IntegrityError, UsageError

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


def test_a_listing_of_nothing_comes_back():
    assert decode(encode([listing()]), name="it") == [listing()]


def test_a_url_is_taken_apart_where_it_spells_the_name():
    before, name, plus, after = split_url(URLS[1])
    assert (before, str(name), plus, after) == (
        "https://example.org/a/", "flash_attn-2.8.3+cu128torch2.8-cp313-cp313t-win_amd64.whl", "%2B", "?download=true",
    )  # fmt: skip


def test_a_url_that_spells_the_name_in_another_way_cannot_be_taken_apart():
    assert split_url("https://example.org/flash%5Fattn-2.8.3-cp312-cp312-win_amd64.whl") is None
    with pytest.raises(UsageError):
        split_url("https://example.org/flash_attn.zip")


@pytest.mark.parametrize(
    "change", [lambda d: d[:-9], lambda d: d[:40] + b"\0" + d[41:], lambda _: b"", lambda _: b"{}"]
)
def test_damaged_bytes_are_an_error(change):
    with pytest.raises(IntegrityError, match="the file is damaged"):
        decode(change(encode([listing(*URLS)])), name="the file")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("collection", {}),
        ("names", []),
        ("names", [["flash_attn"]]),
        ("tags", 5),
        ("places", [[1, 2, 3]]),
        ("rows", [[0], [0]]),
        ("rows", [["a"], [0], [0]]),
        ("sizes", []),
    ],
)
def test_a_document_of_another_shape_is_an_error(key, value):
    document = json.loads(zlib.decompress(encode([listing(*URLS[1:2])])))
    document["listings"][0][key] = value
    with pytest.raises(IntegrityError, match="the file is damaged"):
        decode(zlib.compress(json.dumps(document).encode()), name="the file")


def test_another_version_of_the_format_is_named():
    with pytest.raises(IntegrityError, match="has the format 99, expected 1"):
        decode(zlib.compress(b'{"schema": 99}'), name="the file")
