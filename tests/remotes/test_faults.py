"""What can go wrong with a remote that is read, made to happen: the answer is the right one or none, and the wait is bounded."""

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.depot.gc import plan, run
from flashdepot.depot.verify import verify
from flashdepot.events import Events
from flashdepot.model.remote import RemoteSettings
from flashdepot.net import waiting as workers
from support.depots import make_older
from support.machines import REQUEST
from support.own_world import CONFIG
from support.servers import Answer, answers, serve_remote
from support.tools import run_program

RECORDS, BLOBS = "signed/", "blobs/"


def test_a_miss_is_one_request_and_nothing_is_listed(reader, team, server) -> None:
    assert reader.fetch(team) is None
    assert [method for method, _ in server.seen] == ["GET"]
    assert reader.fetch_unit(team) is None
    assert [method for method, _ in server.seen] == ["GET", "GET"]
    assert not reader.warnings


def test_a_hit_of_a_unit_is_decided_by_one_request(pushed, reader, team, server) -> None:
    server.seen.clear()
    found = reader.fetch_unit(team)
    assert found is not None
    assert reader.depot.blobs.verified_path(found.object.digest).read_bytes() == b"fwd_hdim64_bf16" * 5000
    assert [path.partition("/")[0] for _, path in server.seen] == ["signed", "blobs", "blobs"]


def test_a_unit_whose_inputs_changed_is_not_taken(pushed, reader, team) -> None:
    assert reader.fetch_unit(team, **{"{upstream}/a.h": "f" * 64}) is None
    assert not reader.warnings


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500),
        Answer(503),
        Answer(401),
        Answer(403),
        Answer(drop_after=10),
        Answer(drop_after=0),
        Answer(body=b""),
        Answer(body=b"<html>Sign in to the hotel's network</html>"),
        Answer(body=b'{"schema":1,"records":[{}]}'),
        Answer(body=b'{"schema":99,"records":[]}'),
        Answer(body=b"[" * 100_000),
        Answer(body=b"x" * (3 << 20)),
    ],
    ids=lambda answer: f"{answer.status}-{(answer.body or b'')[:9]!r}-{answer.drop_after}",
)
@pytest.mark.parametrize("where", [RECORDS, BLOBS])
def test_a_remote_that_answers_wrongly_is_a_miss_with_a_warning(where, answer, pushed, reader, team, server) -> None:
    server.fault = answers(where, answer)
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert reader.warnings
    assert all("team" in warning or server.url in warning for warning in reader.warnings)
    assert verify(reader.depot).problems == ()
    server.fault = lambda _method, _path: None
    assert reader.fetch(team) == pushed
    assert reader.depot.find(REQUEST).taken == pushed


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_remote_that_dies_is_a_miss(when, pushed, reader, team, server) -> None:
    if when == "before":
        server.stop()
    else:

        def dies(_method: str, path: str) -> Answer | None:
            return Answer(drop_after=7) if path.startswith(BLOBS) else None

        server.fault = dies
    assert reader.fetch(team) is None
    assert len(reader.warnings) == 1
    assert "is not used from here on" in reader.warnings[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(drop_after=10), "ended its answer after 10 bytes, and "),
        (Answer(403), "answers 403 .*Check the credentials in ~/.netrc, or see"),
    ],
    ids=["half", "403"],
)
def test_a_remote_that_fails_is_described_as_it_failed(answer, said, pushed, reader, team, server) -> None:
    server.fault = answers(RECORDS, answer)
    assert reader.fetch(team) is None
    assert re.search(said, reader.warnings[0])


def test_a_remote_that_failed_is_not_asked_again_in_the_same_run(pushed, reader, team, server) -> None:
    server.fault = answers("", Answer(500))
    server.seen.clear()
    opened = reader.remotes(team)
    for _ in range(5):
        opened.first(lambda remote: remote.offers(REQUEST))
    assert len(server.seen) == 1


def test_a_record_that_trickles_costs_no_more_than_the_remote_may_take(pushed, reader, team, server) -> None:
    server.fault = answers(RECORDS, Answer(pace=0.2))
    began = time.monotonic()
    assert reader.fetch(team) is None
    assert time.monotonic() - began < 3 * team.timeout
    assert "has not" in reader.warnings[0]


def test_a_library_that_trickles_is_given_up(pushed, reader, team, server, monkeypatch) -> None:
    monkeypatch.setattr(workers, "_WINDOW", 0.5)
    large = max((path for path in server.blobs()), key=lambda path: len(server.files[path]))
    server.fault = answers(large, Answer(pace=0.02))
    assert reader.fetch(team) is None
    assert "kB a second" in reader.warnings[0]
    server.fault = lambda _method, _path: None
    assert reader.fetch(team) == pushed


def test_a_library_that_is_slow_and_comes_all_the_time_is_taken(pushed, reader, team, server, monkeypatch) -> None:
    monkeypatch.setattr(workers, "_WINDOW", 0.2)
    monkeypatch.setattr(workers, "_SLOWEST", 1)
    file = min((file for file in pushed.files if not file.link), key=lambda file: file.size)
    server.fault = answers(next(path for path in server.blobs() if path.endswith(file.digest)), Answer(pace=0.001))
    assert reader.fetch(team) == pushed
    assert not reader.warnings


def test_an_address_that_swallows_packets_costs_no_more_than_the_remote_may_take(reader) -> None:
    began = time.monotonic()
    assert reader.fetch(RemoteSettings("gone", "https://10.255.255.1/x", timeout=0.5)) is None
    assert time.monotonic() - began < 3
    assert "gone" in reader.warnings[0]


def test_what_arrived_before_the_connection_was_lost_is_not_fetched_again(pushed, reader, team, server) -> None:
    large = max((path for path in server.blobs()), key=lambda path: len(server.files[path]))
    half = len(server.files[large]) // 2
    server.fault = answers(large, Answer(drop_after=half))
    assert reader.fetch(team) is None
    kept = reader.folder / "depot/downloads" / f"blob-{large.rpartition('/')[2]}"
    assert kept.stat().st_size == half
    server.fault = lambda _method, _path: None
    assert reader.fetch(team) == pushed
    assert not kept.exists()


def test_a_beginning_that_was_wrong_is_fetched_again(pushed, reader, team, server) -> None:
    large = max((path for path in server.blobs()), key=lambda path: len(server.files[path]))
    downloads = reader.folder / "depot/downloads"
    reader.depot.layout.prepare()
    downloads.mkdir()
    (downloads / f"blob-{large.rpartition('/')[2]}").write_bytes(b"wrong" * 10)
    assert reader.fetch(team) == pushed


@pytest.mark.parametrize("change", ["flip", "cut", "grow", "other", "blank"])
def test_wrong_bytes_under_a_right_name_are_never_taken(change, pushed, reader, team, server) -> None:
    for path in server.blobs():
        data = server.files[path]
        server.files[path] = {
            "flip": data[:20] + bytes([data[20] ^ 1]) + data[21:],
            "cut": data[:-1],
            "grow": data + b"x",
            "other": b"MZ" + bytes(1000),
            "blank": data + b" " * data.startswith((b"{", b"[")),  # JSON that says the same
        }[change]
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert verify(reader.depot).problems == ()
    assert reader.warnings


def test_the_first_remote_that_has_it_gives_it_and_a_dead_one_before_it_does_not_matter(pushed, reader, team) -> None:
    dead = RemoteSettings("dead", "http://127.0.0.1:9")
    assert reader.fetch(dead, team) == pushed
    assert "dead" in reader.warnings[0]


def test_offline_asks_no_server_and_still_a_folder(pushed, maker, reader, team, server, tmp_path, monkeypatch) -> None:
    disk = RemoteSettings("disk", (tmp_path / "disk").as_uri())
    (tmp_path / "disk").mkdir()
    maker.push(disk, pushed)
    server.seen.clear()
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert reader.fetch(team) is None
    assert reader.fetch(team, disk) == pushed
    assert not server.seen


def test_a_folder_that_is_not_mounted_is_a_miss_with_a_warning(reader, tmp_path) -> None:
    assert reader.fetch(RemoteSettings("disk", (tmp_path / "disk").as_uri())) is None
    assert "there is no folder" in reader.warnings[0]


def test_gc_frees_what_arrived_of_a_library_that_nobody_asked_for_again(reader) -> None:
    reader.depot.layout.prepare()
    part = reader.depot.layout.downloads / f"blob-{'a' * 64}"
    part.parent.mkdir()
    part.write_bytes(b"half")
    make_older(part, hours=24 * 40)
    assert [removal.path for removal in run(reader.depot, plan(reader.depot))] == [part]
    assert not part.exists()


@pytest.fixture
def silent() -> Iterator[list[RemoteSettings]]:
    """Servers that take a connection and never say a word."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        addresses = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        yield [RemoteSettings(f"silent{number}", url, timeout=1.0) for number, url in enumerate(addresses)]


def test_a_remote_that_never_answers_costs_its_time_once_and_the_next_one_is_heard(
    pushed, reader, team, silent
) -> None:
    remotes = reader.remotes(*silent, team)
    began = time.monotonic()
    assert remotes.first(lambda remote: remote.fetch_recipe(reader.depot, pushed.recipe_key, Events())) == pushed
    assert sum("is not used from here on" in warning for warning in reader.warnings) == len(silent)
    first = time.monotonic() - began
    assert first >= len(silent)
    assert remotes.first(lambda remote: remote.fetch_recipe(reader.depot, pushed.recipe_key, Events())) == pushed
    assert time.monotonic() - began - first < 1


def test_while_the_first_remote_answers_nobody_else_is_asked(pushed, reader, team) -> None:
    with serve_remote() as second:
        assert reader.fetch(team, RemoteSettings("second", second.url)) == pushed
        assert reader.fetch_unit(team, RemoteSettings("second", second.url)) is not None
        assert not second.seen


def test_who_has_no_remote_imports_nothing_that_speaks_with_one(tmp_path) -> None:
    code = (
        "import sys\n"
        "from flashdepot.depot import open_depot\n"
        "from flashdepot.events import Events\n"
        "from flashdepot.cli.common import configured_remotes\n"
        "from support.depots import make_request\n"
        "REQUEST = make_request()\n"
        "before = set(sys.modules)\n"
        "remotes = configured_remotes()\n"
        "depot = open_depot()\n"
        "assert remotes.first(lambda remote: remote.offers(REQUEST)) is None\n"
        "assert depot.remotes.first(lambda remote: remote.fetch_library(depot, REQUEST, Events())) is None\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        CONFIG: str(tmp_path),
        "FLASHDEPOT_HOME": str(tmp_path / "depot"),
    }
    modules = run_program([sys.executable, "-c", code], env=environment, cwd=tmp_path).split()
    unwanted = ("securesystemslib", "cryptography", "requests", "urllib3", "obstore")
    assert [
        m
        for m in modules
        if m.startswith((*unwanted, "flashdepot.remotes.")) and m != "flashdepot.remotes.user_settings"
    ] == []
