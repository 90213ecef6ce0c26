import datetime as dt
import json
import re
import socket
import time

import pytest

from catalog.listing_server import ListingAnswer, asset, release, wheel_name
from flashdepot.catalog import load_catalog
from support.servers import serve_index
from support.tools import assert_ends

START = "/repos/o/r/releases?per_page=30"
DIGEST = "ab" * 32
SHIPPED = sum(wheel.source == "mjun0812" for wheel in load_catalog().wheels)


@pytest.fixture
def github(one_source, server):
    """One release with one wheel on GitHub."""
    one_source("github-releases", START)
    server.serve(START, [release("v1", asset(wheel_name(), sha256=DIGEST, size=250_000_000))])
    return server


@pytest.fixture
def update(catalog):
    return lambda *more: catalog("update", "--source", "mjun0812", *more)


@pytest.fixture
def listed(depot):
    """What the catalog now knows of the one source."""
    return lambda: [w for w in load_catalog(depot / "catalog").wheels if w.source == "mjun0812"]


def test_a_release_on_github_becomes_a_wheel_with_all_that_the_api_tells(github, update, listed):
    done = update()
    assert_ends(done, 0, f"mjun0812: 1 wheels, 1 new, {SHIPPED} gone")
    (wheel,) = listed()
    assert wheel.url.endswith("/v1/flash_attn-2.8.3%2Bcu128torch2.8-cp312-cp312-linux_x86_64.whl")
    assert (wheel.torch, wheel.cuda, wheel.size, wheel.sha256, wheel.seen) == ("2.8", "12.8", 250_000_000, DIGEST, True)
    assert wheel.sass == ("80", "90", "100", "120")


def test_every_page_of_releases_is_read(github, update, listed):
    following = f"{github.url}{START}&page=2"
    github.answers[START].headers["Link"] = f'<{following}>; rel="next", <{following}>; rel="last"'
    github.serve("/repos/o/r/releases?per_page=30&page=2", [release("v0", asset(wheel_name("cp311"), tag="v0"))])
    assert update().code == 0
    assert {wheel.python for wheel in listed()} == {"cp311", "cp312"}


def test_what_has_not_changed_is_not_sent_again(github, update, listed):
    update()
    again = update("--json")
    assert again.json[0]["status"] == "unchanged"
    assert (github.not_modified, len(listed())) == (1, 1)
    github.serve(START, [release("v1", asset(wheel_name()), asset(wheel_name("cp313")))])
    assert update("--json").json[0] | {"wheels": 0} == {
        "source": "mjun0812", "status": "updated", "wheels": 0, "added": 1, "removed": 0, "skipped": [],
    }  # fmt: skip


def test_a_kept_page_that_is_damaged_is_fetched_again(github, update, listed, depot):
    update()
    for page in (depot / "catalog/pages").iterdir():
        page.write_text("{")
    assert update().code == 0
    assert (github.not_modified, len(listed())) == (0, 1)


def test_a_page_that_another_version_has_read_is_fetched_again(github, update, monkeypatch):
    update()
    monkeypatch.setattr("flashdepot.catalog.pages.__version__", "99")
    assert update("--json").json[0]["status"] == "updated"
    assert github.not_modified == 0


@pytest.mark.parametrize("status", [403, 429])
def test_a_limit_of_requests_is_explained_with_the_time_and_loses_nothing(github, update, listed, status):
    update()
    until = dt.datetime(2031, 5, 4, 3, 2, 1, tzinfo=dt.timezone.utc)
    limits = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{until.timestamp():.0f}"}
    github.first = [ListingAnswer(b'{"message": "API rate limit exceeded"}', status, limits)]
    done = update()
    assert_ends(done, 7, "takes no more requests until 2031-05-04 03:02:01 UTC", "GITHUB_TOKEN")
    assert len(listed()) == 1


def test_a_limit_in_the_middle_keeps_the_pages_before_it_for_the_next_attempt(github, update, listed):
    path = "/repos/o/r/releases?per_page=30&page=2"
    github.answers[START].headers["Link"] = f'<{github.url}{path}>; rel="next"'
    github.answers[path] = ListingAnswer(b"{}", 429, {"Retry-After": "120"})
    assert update().code == 7
    assert len(listed()) == SHIPPED
    github.serve(path, [release("v0", asset(wheel_name("cp311"), tag="v0"))])
    assert update().code == 0
    assert (github.not_modified, len(listed())) == (1, 2)


def test_a_wait_in_seconds_becomes_a_time(github, update):
    github.first = [ListingAnswer(b"{}", 429, {"Retry-After": "3600"})]
    before = dt.datetime.now(tz=dt.timezone.utc)
    said = update().err
    until = dt.datetime.fromisoformat(said.partition("until ")[2][:19]).replace(tzinfo=dt.timezone.utc)
    assert dt.timedelta(seconds=3595) < until - before < dt.timedelta(seconds=3660)


@pytest.mark.parametrize(("status", "said"), [(403, "answers 403 Forbidden"), (304, "no earlier copy of it is stored")])
def test_a_first_answer_that_cannot_be_is_not_taken_for_a_limit_of_requests(github, update, status, said):
    github.first = [ListingAnswer(b"", status)]
    done = update()
    assert done.code == 7
    assert said in done.err
    assert "takes no more requests" not in done.err


def test_a_server_that_stumbles_is_asked_again(github, update, listed):
    github.first = [ListingAnswer(b"", 502), ListingAnswer(b"[{}]", cut=True)]
    assert update().code == 0
    assert len(listed()) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ListingAnswer(b"oh no", 500), "answers 500"),
        (ListingAnswer(b'[{"assets": []}]', cut=True), "cannot be fetched"),
        (ListingAnswer(b'[{"assets": ['), "does not answer like its API"),
        (ListingAnswer(b"<html>log in here</html>"), "does not answer like its API"),
        (ListingAnswer(b'{"message": "moved"}'), "its releases are not a list"),
        (ListingAnswer(b'["v1", "v2"]'), "a release is not an object"),
        (ListingAnswer(b'[{"assets": "none"}]'), "its assets are not a list"),
        (ListingAnswer(b"[" * 100_000), "does not answer like its API"),
        (ListingAnswer(b"[]", headers={"Link": '<http://example.org/2>; rel="next"'}), "leads to another server"),
        (ListingAnswer(b"[]", headers={"Link": '<http://[/2>; rel="next"'}), "leads to another server"),
        (ListingAnswer(b"[]", headers={"Link": f'<{START}>; rel="next"'}), "has no end"),
        (ListingAnswer(b"", 404), "answers 404"),
    ],
)
def test_an_invalid_answer_is_an_error_of_the_network_and_loses_nothing(github, update, listed, answer, said):
    update()
    known = listed()
    for page in github.answers:
        github.answers[page] = answer
    done = update()
    assert_ends(done, 7, said)
    assert listed() == known


def test_what_makes_no_sense_in_a_listing_is_skipped_and_named(github, update, listed):
    evil = asset(wheel_name("cp311"))
    github.serve(
        START,
        [
            release(
                "v1",
                asset(wheel_name("cp310")),
                asset("../../flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl"),
                asset("flash_attn-../2.8.3-cp312-cp312-linux_x86_64.whl"),
                asset(wheel_name("cp313"), size=10**30),
                asset(wheel_name("cp314"), size=-1),
                asset(wheel_name("cp39")) | {"size": "large"},
                asset(wheel_name("cp39")) | {"size": True},
                evil | {"browser_download_url": "https://example.org/flash_attn-9.9.9-py3-none-any.whl"},
                evil | {"browser_download_url": f"javascript:alert(1)/{wheel_name('cp311')}"},
                evil | {"browser_download_url": f"https://example.org/ \n/{wheel_name('cp311')}"},
                evil | {"browser_download_url": f"https://[/{wheel_name('cp311')}"},
                evil | {"browser_download_url": None},
                {"size": 5},
                "asset",
                asset("natten-0.21.0-cp312-cp312-linux_x86_64.whl"),
                asset("flash_attn-2.8.3.tar.gz"),
                asset("checksums.txt"),
            ),
            release("v2", asset(wheel_name("cp38"), tag="v2", sha256="not a digest")),
        ],
    )
    done = update("--json")
    assert done.code == 0
    assert [(w.python, w.sha256) for w in listed()] == [("cp310", ""), ("cp38", "")]
    skipped = done.json[0]["skipped"]
    assert len(skipped) == 12
    assert all("natten" not in line and "tar.gz" not in line for line in skipped)
    assert any("its size cannot be 1000000000000000" in line for line in skipped)
    assert sum("its URL" in line for line in skipped) == 5
    assert sum("its size" in line for line in skipped) == 4


def test_files_of_the_hugging_face_hub_are_listed_with_their_digests(server, one_source, update, listed):
    one_source("huggingface-tree", "/tree?recursive=true", files="https://huggingface.co/o/r/resolve/main/")
    lfs = {"oid": DIGEST, "size": 240_000_000, "pointerSize": 134}
    name = wheel_name("cp310", torch="2.7.0", platform="win_amd64")
    server.serve(
        "/tree?recursive=true",
        [
            {"type": "directory", "oid": "1" * 40, "size": 0, "path": "old"},
            {"type": "file", "oid": "2" * 40, "size": 134, "path": f"old/{name}", "lfs": lfs},
            {"type": "file", "oid": "3" * 40, "size": 900, "path": wheel_name("cp311")},
            {"type": "file", "oid": "4" * 40, "size": 900, "path": f"../{wheel_name('cp312')}"},
            {"type": "file", "oid": "5" * 40, "size": 31, "path": "README.md"},
            {"type": "file", "path": 5},
        ],
    )
    done = update("--json")
    assert [(w.python, w.size, w.sha256, w.url) for w in listed()] == [
        ("cp310", 240_000_000, DIGEST, f"https://huggingface.co/o/r/resolve/main/old/{name.replace('+', '%2B')}"),
        ("cp311", 900, "", f"https://huggingface.co/o/r/resolve/main/{wheel_name('cp311').replace('+', '%2B')}"),
    ]
    assert len(done.json[0]["skipped"]) == 2


@pytest.mark.parametrize("as_json", [True, False])
def test_a_package_index_that_is_named_once_is_remembered(catalog, depot, as_json):
    with serve_index() as index:
        index.as_json = as_json
        index.files = {wheel_name(): b"wheel", wheel_name("cp39"): b"wrong", "flash_attn-2.8.3.tar.gz": b"sdist"}
        index.yanked = {wheel_name("cp39")}
        done = catalog("update", "--index", f"ours={index.url}")
        assert_ends(done, 0, "ours: 1 wheels, 1 new")
        (wheel,) = (w for w in load_catalog(depot / "catalog").wheels if w.source == "ours")
        assert (wheel.seen, len(wheel.sha256), wheel.cuda) == (True, 64, "12.8")
        assert catalog("ls", "--source", "ours", "--json").json[0]["url"] == wheel.url
        index.files[wheel_name("cp313")] = b"another"
        assert "ours: 2 wheels, 1 new" in catalog("update", "--source", "ours").err


def test_an_index_that_has_no_flash_attn_is_not_remembered(catalog, depot):
    with serve_index() as index:
        done = catalog("update", "--index", index.url.replace("/simple/", "/nothing/"))
    assert_ends(done, 7, "has no flash-attn")
    assert not (depot / "catalog/sources.json").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("wheels", "is not a URL"),
        ("ftp://example.org/simple/", "is not a URL"),
        ("Our Wheels=https://example.org/simple/", "is not a name"),
        ("http://[/simple/", "is not a URL"),
        ("official=https://example.org/simple/", "'official' is already a source"),
        ("https://me:secret@example.org/simple/", "has a user or a password in it"),
    ],
)
def test_an_index_must_be_a_url_without_secrets(catalog, url, said):
    done = catalog("update", "--index", url)
    assert done.code == 2
    assert said in done.err
    assert "secret" not in done.err


def test_one_source_that_fails_does_not_stop_the_others(github, catalog, listed):
    with serve_index() as index:
        done = catalog("update", "--index", index.url.replace("/simple/", "/nothing/"), "--source", "mjun0812")
    assert_ends(done, 7, "mjun0812: 1 wheels")
    assert done.err.count("has no flash-attn") == 1
    assert len(listed()) == 1


def test_when_several_sources_fail_each_is_named(github, catalog, listed):
    github.first = [ListingAnswer(b"", 404)]
    done = catalog("update", "--source", "mjun0812", "--index", "a=http://127.0.0.1:9/simple/")
    assert_ends(done, 7, "2 of 2 sources did not answer", "answers 404", "127.0.0.1:9/simple/ cannot be reached")
    assert len(listed()) == SHIPPED


def test_without_leave_to_use_the_network_it_says_so(github, update, listed, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    done = update()
    assert_ends(done, 7, "FLASHDEPOT_OFFLINE forbids it")
    assert (github.requests, len(listed())) == ([], SHIPPED)


def test_when_nobody_answers_it_says_so_in_one_line_within_seconds(catalog, depot):
    """Half of them refuse the connection, and the others take it and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ports = [9, silent.getsockname()[1]]
        shipped = ("official", "mjun0812", "nvidia-cosmos", "windreamer", "lldacing", "wildminder")
        rows = [
            {"name": name, "kind": "community", "format": "github-releases", "files": "", "licence": "",
             "page": "https://example.org/", "listing": f"http://127.0.0.1:{ports[number % 2]}/releases"}
            for number, name in enumerate(shipped)
        ]  # fmt: skip
        (depot / "catalog").mkdir(parents=True)
        (depot / "catalog/sources.json").write_text(json.dumps({"source": rows}))
        begun = time.monotonic()
        done = catalog("update")
    assert done.code == 7
    assert done.err.count("\n") == 2
    assert "No source of the catalog can be reached (127.0.0.1); it stays as it is." in done.err
    assert time.monotonic() - begun < 20  # 3 s, on a machine with nothing else to do


def test_the_catalog_says_how_old_it_is(catalog):
    assert re.search(r"The catalog was listed (today|\d+ days? ago)", catalog("stats").err)


def test_a_source_that_there_is_not_is_an_error_with_those_that_there_are(catalog):
    done = catalog("update", "--source", "pypi")
    assert_ends(done, 2, "there are official, mjun0812")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"source": [5]}', '{"source": [{"name": "../up"}]}', json.dumps({"source": [{"name": "a"}]})]
)
def test_a_list_of_sources_that_is_damaged_is_named_and_kept(catalog, depot, text):
    path = depot / "catalog/sources.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = catalog("update")
    assert_ends(done, 2, "sources.json is not a list of sources")
    assert path.read_text() == text
