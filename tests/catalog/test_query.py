"""Questions asked of the catalog, in Python and by its command."""

import json
from collections import Counter
from datetime import datetime

import pytest

from flashdepot.catalog import load_catalog
from flashdepot.catalog.load import Catalog, Collection
from flashdepot.catalog.matrix import (
    Filter,
    abi_word,
    in_ranges,
    package_words,
    platform_words,
    python_of,
    python_order,
    rows,
    serves,
    summaries,
)
from flashdepot.catalog.published_files import PublishedFile, to_wheels
from flashdepot.model.wheel import Interpreter
from support.tools import assert_ends


def wheels(*names):
    files = [PublishedFile(name, f"https://example.org/v{n}/{name}", 0, "") for n, name in enumerate(names)]
    return to_wheels(files, source="ours", official=False)


def wheel(tag):
    return wheels(f"flash_attn-2.8.3+cu128torch2.8-{tag}.whl")[0]


@pytest.mark.parametrize(
    ("wanted", "accepted"),
    [
        (Filter(), True),
        (Filter(torch="2"), True),
        (Filter(torch="2.6"), True),
        (Filter(torch="2.6.0"), True),
        (Filter(torch="2.6.1"), False),
        (Filter(torch="2.60"), False),
        (Filter(cuda="12"), True),
        (Filter(cuda="12.4"), True),
        (Filter(cuda="1"), False),
        (Filter(version="2.7.4"), False),
        (Filter(version="2.7.4.post1"), True),
        (Filter(version="2.7"), True),
        (Filter(version="2.7.4.post2"), False),
        (Filter(python=Interpreter.parse("cp310")), True),
        (Filter(python=Interpreter.parse("cp311")), False),
        (Filter(platform="win"), True),
        (Filter(platform="linux"), False),
        (Filter(source="ours"), True),
        (Filter(source="our"), False),
        (Filter(torch="2.6", cuda="13"), False),
    ],
)
def test_a_filter_accepts_what_all_its_fields_accept(wanted, accepted):
    (one,) = wheels("flash_attn-2.7.4.post1+cu124torch2.6.0cxx11abiFALSE-cp310-cp310-win_amd64.whl")
    assert wanted.accepts(one) is accepted


def test_a_wheel_that_names_only_the_major_version_of_cuda_is_for_all_of_it():
    (official,) = wheels("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl")
    assert Filter(cuda="12.8").accepts(official)
    assert not Filter(cuda="13.0").accepts(official)


@pytest.mark.parametrize(
    ("tag", "interpreter", "served"),
    [
        ("cp313-cp313-win_amd64", "cp313", True),
        ("cp313-cp313-win_amd64", "cp313t", False),
        ("cp313-cp313t-win_amd64", "cp313t", True),
        ("cp313-cp313t-win_amd64", "cp313", False),
        ("cp39-abi3-win_amd64", "cp39", True),
        ("cp39-abi3-win_amd64", "cp314", True),
        ("cp310-abi3-win_amd64", "cp39", False),
        ("cp39-abi3-win_amd64", "cp314t", False),
        ("cp310.cp311-none-win_amd64", "cp311", True),
    ],
)
def test_tags_serve_the_interpreters_that_they_are_for(tag, interpreter, served):
    assert serves(wheel(tag), Interpreter.parse(interpreter)) is served


@pytest.mark.parametrize(
    ("tag", "python", "platform"),
    [
        ("cp312-cp312-linux_x86_64", "3.12", "Linux x86-64"),
        ("cp313-cp313t-manylinux_2_34_aarch64", "3.13t", "Linux aarch64 (glibc 2.34)"),
        ("cp39-abi3-manylinux_2_24_x86_64.manylinux_2_28_x86_64", "3.9+", "Linux x86-64 (glibc 2.24)"),
        ("cp310-cp310-win_amd64", "3.10", "Windows x86-64"),
        ("py3-none-any", "py3-none", "any"),
    ],
)
def test_tags_are_said_as_people_say_them(tag, python, platform):
    assert (python_of(wheel(tag)), platform_words(wheel(tag))) == (python, platform)


def test_rows_hold_wheels_that_differ_only_by_python_and_the_newest_come_first():
    table = rows(
        wheels(
            "flash_attn-2.8.3+cu128torch2.8-cp310-cp310-linux_x86_64.whl",
            "flash_attn-2.8.3+cu128torch2.8-cp39-cp39-linux_x86_64.whl",
            "flash_attn-2.8.3+cu128torch2.10-cp310-cp310-linux_x86_64.whl",
            "flash_attn-2.8.3+cu128torch2.8cxx11abiTRUE-cp310-cp310-linux_x86_64.whl",
            "flash_attn-2.10.0+cu128torch2.8-cp310-cp310-linux_x86_64.whl",
            "flash_attn_3-3.0.0+cu128torch2.8-cp39-abi3-linux_x86_64.whl",
        )
    )
    assert [(package_words(row[0]), row[0].torch, abi_word(row[0]), [python_of(w) for w in row]) for row in table] == [
        ("2.10.0", "2.8", "", ["3.10"]),
        ("2.8.3", "2.10", "", ["3.10"]),
        ("2.8.3", "2.8", "", ["3.9", "3.10"]),
        ("2.8.3", "2.8", "new", ["3.10"]),
        ("flash-attn-3 3.0.0", "2.8", "", ["3.9+"]),
    ]


def test_a_wheel_that_was_published_again_comes_before_its_older_self():
    name = "flash_attn-2.8.3+cu128torch2.8-cp310-cp310-linux_x86_64.whl"
    (row,) = rows(
        to_wheels(
            [PublishedFile(name, f"https://example.org/v0.{n}.0/{name}", 0, "") for n in (9, 10, 2)],
            source="ours",
            official=False,
        )
    )
    assert [w.url.split("/")[3] for w in row] == ["v0.10.0", "v0.9.0", "v0.2.0"]


def test_a_summary_puts_everything_for_one_torch_in_a_line():
    (summary,) = summaries(
        wheels(
            "flash_attn-2.8.3+cu128torch2.8.1-cp310-cp310-linux_x86_64.whl",
            "flash_attn-2.8.3+cu126torch2.8-cp311-cp311-manylinux_2_28_x86_64.whl",
            "flash_attn-2.8.3+cu13torch2.8-cp313-cp313t-win_amd64.whl",
        )
    )
    assert (summary.torch, summary.cuda, summary.wheels) == ("2.8", ("12.6", "12.8", "13"), 3)
    assert summary.platforms == ("Linux x86-64", "Windows x86-64")
    assert in_ranges(summary.python) == "3.10-3.11 3.13t"


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ((), ""),
        (("3.9",), "3.9"),
        (("3.9", "3.10", "3.11", "3.13"), "3.9-3.11 3.13"),
        (("3.12", "3.13", "3.13t", "3.14t", "3.9+"), "3.12-3.13 3.13t-3.14t 3.9+"),
    ],
)
def test_ranges_of_python_versions_are_short(labels, text):
    assert in_ranges(sorted(labels, key=python_order)) == text


def test_ls_lists_what_the_filters_leave(catalog):
    found = catalog(
        "ls", "--version", "2.8.3", "--torch", "2.8", "--python-tag", "cp312", "--source", "official", "--json"
    )
    assert [(w["cxx11_abi"], w["platform"], w["seen"], w["sass"]) for w in found.json] == [
        (False, "linux_x86_64", False, ["80", "90", "100", "120"]),
        (True, "linux_x86_64", False, ["80", "90", "100", "120"]),
    ]  # fmt: skip
    printed = catalog("ls", "--version", "2.8.3", "--torch", "2.8", "--python-tag", "cp312", "--source", "official")
    assert [" ".join(line.split()) for line in printed.out.splitlines()] == [
        "flash-attn torch CUDA ABI Python platform source release size",
        "2.8.3 2.8 12 old 3.12 Linux x86-64 official v2.8.3 expected",
        "2.8.3 2.8 12 new 3.12 Linux x86-64 official v2.8.3 expected",
    ]


def test_ls_says_how_much_it_left_out(catalog):
    done = catalog("ls", "--limit", "3", "--platform", "win")
    count = sum("win" in wheel.platform for wheel in load_catalog().wheels)
    assert len(done.out.splitlines()) == 4
    assert f"3 of {count} wheels" in done.err
    assert len(catalog("ls", "--limit", "0", "--platform", "win").out.splitlines()) == count + 1
    documents = [
        json.loads(catalog("ls", *words, "--platform", "win", "--json").out) for words in ((), ("--limit", "3"))
    ]
    assert [len(document) for document in documents] == [count, 3]
    assert "No wheel matches" in catalog("ls", "--torch", "9").err


def test_ls_prints_addresses_for_pip_and_takes_a_version_of_python(catalog):
    wanted = ("--version", "2.8.3", "--torch", "2.8", "--torch-cuda", "12.8", "--source", "official")
    found = catalog("ls", *wanted, "--python-tag", "3.12", "--urls").out.splitlines()
    assert len(found) == 2
    assert all(url.startswith("https://") and "cp312" in url for url in found)
    assert catalog("ls", *wanted, "--python-tag", "cp312", "--urls").out.splitlines() == found
    assert catalog("ls", *wanted, "--python-tag", "snake").code == 2


def test_stats_counts_all_of_them(catalog):
    shipped = load_catalog()
    counted = catalog("stats", "--json").json
    assert counted["wheels"] == len(shipped.wheels)
    assert {c["name"]: c["wheels"] for c in counted["collections"]} == Counter(wheel.source for wheel in shipped.wheels)
    printed = catalog("stats", "--source", "windreamer")
    assert "https://github.com/windreamer/flash-attention3-wheels" in printed.out
    assert f"{sum(wheel.source == 'windreamer' for wheel in shipped.wheels)} wheels." in printed.err


def test_matrix_has_a_line_for_each_version_and_torch(catalog):
    lines = catalog("matrix", "--version", "2.7.4.post1", "--source", "official").out.splitlines()
    assert [" ".join(line.split()) for line in lines[1:3]] == [
        "2.7.4.post1 2.6 12 3.9-3.13 Linux x86-64 official 10",
        "2.7.4.post1 2.5 12 3.9-3.13 Linux x86-64 official 10",
    ]
    document = catalog("matrix", "--version", "2.7.4.post1", "--source", "official", "--json").json
    assert document[0] == {
        "version": "2.7.4.post1", "torch": "2.6", "cuda": ["12"], "python": ["3.9", "3.10", "3.11", "3.12", "3.13"],
        "platforms": ["Linux x86-64"], "sources": ["official"], "wheels": 10,
    }  # fmt: skip
    assert sum(line["wheels"] for line in document) == 44


@pytest.mark.parametrize("command", ["ls", "stats", "matrix"])
def test_a_source_that_there_is_not_is_an_error(catalog, command):
    done = catalog(command, "--source", "pypi")
    assert_ends(done, 2, "'pypi' is not a source: there are official")


def test_a_damaged_refresh_is_a_warning(catalog, depot):
    path = depot / "catalog/listings/official.json.z"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"?")
    done = catalog("ls", "--source", "official", "--limit", "1")
    assert_ends(done, 0, "warning: ", "official.json.z is damaged")


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (["2026-03-04T23:59:59Z"], "listed today"),
        (["2026-03-05T00:00:00Z"], "listed today"),  # another machine's clock
        (["2026-03-03T00:00:00Z"], "listed 1 day ago"),
        (["2026-03-04T00:00:00Z", "2026-02-28T00:00:00Z"], "listed 4 days ago"),
        ([], "listed today"),
    ],
)
def test_the_age_of_the_catalog_is_that_of_its_oldest_collection(listed, said) -> None:
    collections = tuple(Collection(f"c{n}", "official", "", "", day) for n, day in enumerate(listed))
    assert Catalog((), collections, ()).age(datetime.fromisoformat("2026-03-04T12:00:00+00:00")) == said
