from collections import Counter

import pytest

from flashdepot.catalog import load_catalog


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
    assert counted["counts"]["source"] == Counter(wheel.source for wheel in shipped.wheels)
    assert counted["counts"]["existence"]["seen"] == sum(wheel.seen for wheel in shipped.wheels)
    assert {sum(counts.values()) for counts in counted["counts"].values()} == {len(shipped.wheels)}
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
    assert done.code == 2
    assert "'pypi' is not a source: there are official" in done.err


def test_a_damaged_refresh_is_a_warning(catalog, depot):
    path = depot / "catalog/listings/official.json.z"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"?")
    done = catalog("ls", "--source", "official", "--limit", "1")
    assert done.code == 0
    assert "warning: " in done.err
    assert "official.json.z is damaged" in done.err
