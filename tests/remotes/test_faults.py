"""What can go wrong with a remote, made to happen: the answer is the right one or none, and the wait is bounded."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from depot.depot_factories import make_older, make_record, store_library
from flashdepot.depot.gc import plan, run
from flashdepot.depot.verify import verify
from flashdepot.errors import NetworkError, UsageError
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes import workers
from flashdepot.remotes.envelopes import Envelope, read_envelopes, write_envelopes
from flashdepot.remotes.statements import library_places
from flashdepot.remotes.user_settings import today
from remotes.parties import REQUEST, Party
from support.remote_server import Answer, RemoteServer

RECORDS, BLOBS = "signed/", "blobs/"
KILLS = int(os.environ.get("FLASHDEPOT_PUSH_KILLS", "6"))


def answers(path_begins: str, answer: Answer, method: str = "GET") -> Callable[[str, str], Answer | None]:
    return lambda asked, path: answer if asked == method and path.startswith(path_begins) else None


def test_a_library_is_fetched_and_then_it_is_there(pushed: Manifest, reader: Party, team: RemoteSettings) -> None:
    assert reader.fetch(team) == pushed
    assert reader.depot.find(REQUEST).taken == pushed
    assert not reader.warnings


def test_a_unit_is_fetched_and_then_it_is_there(pushed: Manifest, reader: Party, team: RemoteSettings) -> None:
    found = reader.fetch_unit(team)
    assert found is not None
    assert reader.depot.blobs.verified_path(found.object.digest).read_bytes() == b"fwd_hdim64_bf16" * 5000


def test_a_miss_is_one_request_and_nothing_is_listed(reader: Party, team: RemoteSettings, server: RemoteServer) -> None:
    assert reader.fetch(team) is None
    assert [method for method, _ in server.seen] == ["GET"]
    assert reader.fetch_unit(team) is None
    assert [method for method, _ in server.seen] == ["GET", "GET"]
    assert not reader.warnings


def test_a_hit_of_a_unit_is_decided_by_one_request(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    server.seen.clear()
    assert reader.fetch_unit(team) is not None
    assert [path.partition("/")[0] for _, path in server.seen] == ["signed", "blobs", "blobs"]


def test_a_unit_whose_inputs_changed_is_not_taken(pushed: Manifest, reader: Party, team: RemoteSettings) -> None:
    assert reader.fetch_unit(team, **{"{upstream}/a.h": "f" * 64}) is None
    assert not reader.warnings


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500),
        Answer(503),
        Answer(401),
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
def test_a_remote_that_answers_wrongly_is_a_miss_with_a_warning(
    where: str, answer: Answer, pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    server.fault = answers(where, answer)
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert reader.warnings
    assert all("team" in warning or server.url in warning for warning in reader.warnings)
    assert verify(reader.depot).problems == ()
    server.fault = lambda _method, _path: None
    assert reader.fetch(team) == pushed


def test_a_remote_that_refuses_to_be_read_is_a_miss(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    server.fault = answers("", Answer(403))
    assert reader.fetch(team) is None
    assert "403" in reader.warnings[0]


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_remote_that_dies_is_a_miss(
    when: str, pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    if when == "before":
        server.stop()
    else:

        def dies(_method: str, path: str) -> Answer | None:
            return Answer(drop_after=7) if path.startswith(BLOBS) else None

        server.fault = dies
    assert reader.fetch(team) is None
    assert len(reader.warnings) == 1
    assert "is not used from here on" in reader.warnings[0]


def test_a_remote_that_failed_is_not_asked_again_in_the_same_run(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    server.fault = answers("", Answer(500))
    server.seen.clear()
    opened = reader.remotes(team)
    for _ in range(5):
        opened.fetch_actions(reader.depot, {make_record().intent_key}, make_record().inputs.get, lambda _: None)
    assert len(server.seen) == 1


def test_a_record_that_trickles_costs_no_more_than_the_remote_may_take(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    server.fault = answers(RECORDS, Answer(pace=0.2))
    began = time.monotonic()
    assert reader.fetch(team) is None
    assert time.monotonic() - began < 3 * team.timeout
    assert "has not" in reader.warnings[0]


def test_a_library_that_trickles_is_given_up(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_WINDOW", 0.5)
    large = max((path for path in server.blobs()), key=lambda path: len(server.files[path]))
    server.fault = answers(large, Answer(pace=0.02))
    assert reader.fetch(team) is None
    assert "kB a second" in reader.warnings[0]
    server.fault = lambda _method, _path: None
    assert reader.fetch(team) == pushed


def test_an_address_that_swallows_packets_costs_no_more_than_the_remote_may_take(reader: Party) -> None:
    began = time.monotonic()
    assert reader.fetch(RemoteSettings("gone", "https://10.255.255.1/x", timeout=0.5)) is None
    assert time.monotonic() - began < 3
    assert "gone" in reader.warnings[0]


def test_what_arrived_before_the_connection_was_lost_is_not_fetched_again(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    large = max((path for path in server.blobs()), key=lambda path: len(server.files[path]))
    half = len(server.files[large]) // 2
    server.fault = answers(large, Answer(drop_after=half))
    assert reader.fetch(team) is None
    kept = reader.folder / "depot/downloads" / f"blob-{large.rpartition('/')[2]}"
    assert kept.stat().st_size == half
    server.fault = lambda _method, _path: None
    assert reader.fetch(team) == pushed
    assert not kept.exists()


def test_a_beginning_that_was_wrong_is_fetched_again(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    large = max((path for path in server.blobs()), key=lambda path: len(server.files[path]))
    downloads = reader.folder / "depot/downloads"
    reader.depot.layout.prepare()
    downloads.mkdir()
    (downloads / f"blob-{large.rpartition('/')[2]}").write_bytes(b"wrong" * 10)
    assert reader.fetch(team) == pushed


@pytest.mark.parametrize("change", ["flip", "cut", "grow", "other"])
def test_wrong_bytes_under_a_right_name_are_never_taken(
    change: str, pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    for path in server.blobs():
        data = server.files[path]
        server.files[path] = {
            "flip": data[:20] + bytes([data[20] ^ 1]) + data[21:],
            "cut": data[:-1],
            "grow": data + b"x",
            "other": b"MZ" + bytes(1000),
        }[change]
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert verify(reader.depot).problems == ()
    assert reader.warnings


def test_a_record_that_lies_under_another_name_is_not_taken(
    pushed: Manifest, maker: Party, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    library, unit = (next(p for p in server.records() if f"/{kind}/" in p) for kind in ("libraries", "units"))
    other = make_record("bwd_hdim64_bf16")
    server.files[f"signed/units/{other.intent_key[:2]}/{other.intent_key}.json"] = server.files[unit]
    assert reader.fetch_unit(team, record=other) is None
    assert "is about something else" in reader.warnings[-1]
    server.files[unit] = server.files[library]
    assert reader.fetch_unit(team) is None
    assert "no statement of the kind" in reader.warnings[-1]


def test_a_record_that_was_changed_after_it_was_signed_is_refused(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    for path in server.records():
        changed = [
            Envelope(envelope.payload.replace(b'"size":', b'"size":1'), envelope.signatures)
            for envelope in read_envelopes(server.files[path])
        ]
        server.files[path] = write_envelopes(changed)
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert "changed after it was signed" in reader.warnings[0]


def test_what_nobody_signed_is_refused_unless_the_user_takes_it(
    pushed: Manifest, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    for path in server.records():
        bare = [Envelope(envelope.payload) for envelope in read_envelopes(server.files[path])]
        server.files[path] = write_envelopes(bare)
    assert reader.fetch(team) is None
    assert "nobody has signed it" in reader.warnings[0]
    assert "--unsigned" in reader.warnings[0]
    assert reader.fetch(replace(team, unsigned=True)) == pushed


def test_a_key_that_is_not_trusted_convinces_nobody(
    pushed: Manifest, new_party: Callable[[str], Party], team: RemoteSettings
) -> None:
    stranger = new_party("stranger")
    stranger.key("other")
    assert stranger.fetch(team) is None
    assert stranger.fetch_unit(team) is None
    assert "a key that you do not trust" in stranger.warnings[0]
    assert "flashdepot keys trust" in stranger.warnings[0]


@pytest.mark.parametrize("days", [1, 0])
def test_a_key_is_believed_up_to_its_last_day(
    days: int, pushed: Manifest, maker: Party, new_party: Callable[[str], Party], team: RemoteSettings
) -> None:
    late = new_party("late")
    (trusted,) = maker.settings.trusted_keys()
    late.trust(trusted.key, expires=today() - timedelta(days=days))
    assert (late.fetch(team) is None) == bool(days)
    assert not days or "expired on" in late.warnings[0]


def test_a_revoked_key_convinces_nobody_even_where_the_remote_names_it(
    pushed: Manifest, reader: Party, team: RemoteSettings
) -> None:
    key = reader.settings.revoke("ci").key
    assert reader.fetch(replace(team, keys=(key,))) is None
    assert "was revoked" in reader.warnings[0]


def test_a_key_that_is_trusted_for_one_remote_convinces_nobody_of_another(
    pushed: Manifest, maker: Party, new_party: Callable[[str], Party], team: RemoteSettings
) -> None:
    careful = new_party("careful")
    (trusted,) = maker.settings.trusted_keys()
    careful.trust(trusted.key, remotes=("other",))
    assert careful.fetch(team) is None
    assert "trusted for other only" in careful.warnings[0]
    assert careful.fetch(replace(team, name="other")) == pushed


def test_several_builders_can_be_demanded(
    pushed: Manifest, new_party: Callable[[str], Party], reader: Party, team: RemoteSettings
) -> None:
    demanding = replace(team, builders=2)
    assert reader.fetch(demanding) is None
    assert "2 builders must have signed it" in reader.warnings[0]
    second = new_party("second")
    reader.trust(second.key("second"))
    second.push(team, second.store())
    assert reader.fetch(demanding) == pushed


def test_a_second_builder_with_other_bytes_does_not_count(
    pushed: Manifest, new_party: Callable[[str], Party], reader: Party, team: RemoteSettings
) -> None:
    second = new_party("second")
    reader.trust(second.key("second"))
    second.push(team, store_library(second.depot, second.folder / "files", name="two", recipe_key=pushed.recipe_key))
    assert reader.fetch(replace(team, builders=2)) is None


def test_records_of_strangers_crowd_nobody_out(
    pushed: Manifest,
    new_party: Callable[[str], Party],
    maker: Party,
    reader: Party,
    team: RemoteSettings,
    server: RemoteServer,
) -> None:
    place = library_places(pushed)[0]
    junk = [Envelope(json.dumps({"n": n}).encode(), (("0" * 64, "00" * 64),)) for n in range(40)]
    server.files[place] = write_envelopes(junk)
    maker.push(team, maker.store("two"))
    maker.push(team, maker.store("one"))
    found = read_envelopes(server.files[place])
    assert sum(len(envelope.payload) > 100 for envelope in found) == 2
    assert reader.fetch(team) is not None


def test_the_first_remote_that_has_it_gives_it_and_a_dead_one_before_it_does_not_matter(
    pushed: Manifest, reader: Party, team: RemoteSettings
) -> None:
    dead = RemoteSettings("dead", "http://127.0.0.1:9")
    assert reader.fetch(dead, team) == pushed
    assert "dead" in reader.warnings[0]


def test_offline_asks_no_server_and_a_folder_all_the_same(
    pushed: Manifest,
    maker: Party,
    reader: Party,
    team: RemoteSettings,
    server: RemoteServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = RemoteSettings("disk", f"file://{tmp_path}/disk")
    (tmp_path / "disk").mkdir()
    maker.push(disk, pushed)
    server.seen.clear()
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert reader.fetch(team) is None
    assert reader.fetch(team, disk) == pushed
    assert not server.seen


def test_a_folder_that_is_not_mounted_is_a_miss_with_a_warning(reader: Party, tmp_path: Path) -> None:
    assert reader.fetch(RemoteSettings("disk", f"file://{tmp_path}/disk")) is None
    assert "there is no folder" in reader.warnings[0]


# Pushing


def test_what_is_there_is_not_sent_again(
    pushed: Manifest, maker: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    server.seen.clear()
    again = maker.push(team, pushed)
    assert (again.blobs, again.records) == (0, 0)
    assert "PUT" not in {method for method, _ in server.seen}


def test_records_are_written_after_all_blobs(pushed: Manifest, server: RemoteServer) -> None:
    puts = [path.partition("/")[0] for method, path in server.seen if method == "PUT"]
    assert puts == sorted(puts)
    assert set(puts) == {"blobs", "signed"}


@pytest.mark.parametrize(("status", "hint"), [(401, "netrc"), (403, "netrc"), (405, "PUT"), (500, "PUT"), (507, "PUT")])
def test_a_remote_that_takes_nothing_gets_no_record(
    status: int, hint: str, maker: Party, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    reader.trust(maker.key())
    manifest = maker.store()
    server.fault = answers(BLOBS, Answer(status), "PUT")
    with pytest.raises(NetworkError, match=f"cannot be written: it answers {status}") as refused:
        maker.push(team, manifest)
    assert hint in refused.value.hint
    assert not server.records()
    server.fault = lambda _method, _path: None
    maker.push(team, manifest)
    assert reader.fetch(team) == manifest


def test_a_push_needs_a_key(maker: Party, team: RemoteSettings, server: RemoteServer) -> None:
    with pytest.raises(UsageError, match="no key to sign with"):
        maker.push(team, maker.store())
    assert not server.files


def test_a_blob_that_was_cut_short_on_the_remote_is_sent_again(
    pushed: Manifest, maker: Party, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    for path in server.blobs():
        server.files[path] = server.files[path][:-3]
    maker.push(team, pushed)
    assert reader.fetch(team) == pushed


def test_two_that_push_at_once_lose_nothing(
    maker: Party, new_party: Callable[[str], Party], reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    parties = [maker, *(new_party(f"maker{n}") for n in range(2))]
    for number, party in enumerate(parties):
        reader.trust(party.key(f"key{number}"))
    names = [f"library{number}" for number in range(3)]
    manifests = [party.store(name) for party, name in zip(parties, names, strict=True)]
    processes = [_push_process(party, server.url, name) for party, name in zip(parties, names, strict=True)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    for manifest in manifests:
        other = Party(reader.folder.parent / manifest.recipe_key[:8], reader.monkeypatch)
        for key in reader.settings.trusted_keys():
            other.trust(key.key)
        taken = other.remotes(team).all()[0].library(manifest.recipe_key)
        assert [statement.summary.recipe_key for statement in taken] == [manifest.recipe_key]
    assert len(read_envelopes(server.files[library_places(manifests[0])[0]])) == 3


def test_a_push_that_is_killed_leaves_nothing_torn(
    maker: Party, reader: Party, team: RemoteSettings, server: RemoteServer
) -> None:
    reader.trust(maker.key())
    manifest = maker.store(units=[f"fwd_hdim{n}_bf16" for n in (32, 64, 96, 128)])
    began = time.monotonic()
    assert _push_process(maker, server.url, "one").wait() == 0
    whole = time.monotonic() - began
    server.files.clear()
    chance = random.Random(20)
    for _ in range(KILLS):
        process = _push_process(maker, server.url, "one")
        time.sleep(chance.uniform(0.3, 1.0) * whole)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for place in server.records():
            for envelope in read_envelopes(server.files[place]):
                for digest in _digests(envelope):
                    assert f"blobs/sha256/{digest[:2]}/{digest}" in server.files
        if chance.random() < 0.3:
            server.files.clear()
    assert _push_process(maker, server.url, "one").wait() == 0
    assert reader.fetch(team) == manifest
    assert not reader.warnings


def _push_process(party: Party, url: str, name: str) -> subprocess.Popen[bytes]:
    assert party.settings.trusted_keys()
    environment = {**os.environ, "XDG_CONFIG_HOME": str(party.folder / "config")}
    script = Path(__file__).with_name("push_one.py")
    return subprocess.Popen([sys.executable, str(script), str(party.folder / "depot"), url], env=environment)


def _digests(envelope: Envelope) -> list[str]:
    statement = json.loads(envelope.payload)
    found = [statement["subject"][0]["digest"]["sha256"]]
    found += [
        file["digest"] for file in statement["predicate"].get("manifest", {}).get("files", []) if "digest" in file
    ]
    return [*found, *filter(None, [statement["predicate"].get("names")])]


def test_gc_frees_what_arrived_of_a_library_that_nobody_asked_for_again(reader: Party) -> None:
    reader.depot.layout.prepare()
    part = reader.depot.layout.downloads / f"blob-{'a' * 64}"
    part.parent.mkdir()
    part.write_bytes(b"half")
    make_older(part, hours=24 * 40)
    assert [removal.path for removal in run(reader.depot, plan(reader.depot)).removals] == [part]
    assert not part.exists()
