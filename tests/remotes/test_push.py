"""What can go wrong with a push, made to happen; and what a machine publishes that compiled nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flashdepot.errors import NetworkError, UsageError
from flashdepot.files.atomic import read_json
from flashdepot.model.index_record import RECORD_NAME
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.push import Pushed
from flashdepot.remotes.statements import library_places
from flashdepot.remotes.trust import read_envelopes
from support.machines import Machine, Party
from support.own_world import CONFIG
from support.servers import Answer, RemoteServer, answers
from support.tools import posix

BLOBS = "blobs/"
KILLS = int(os.environ.get("FLASHDEPOT_PUSH_KILLS", "6"))


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


@pytest.mark.slow
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


def _push_process(party: Party, url: str, name: str) -> subprocess.Popen[bytes]:
    assert party.settings.trusted_keys()
    environment = {**os.environ, CONFIG: str(party.folder / "config")}
    script = Path(__file__).with_name("push_one.py")
    return subprocess.Popen([sys.executable, str(script), str(party.folder / "depot"), url], env=environment)


@pytest.mark.parametrize(
    ("pushed", "text"),
    [
        (Pushed(1, 1, 1, 1000, 1), "1 library and 1 unit, 1 blob (1.0 kB) and 1 record sent"),
        (Pushed(2, 0, 0, 0, 0), "2 libraries and 0 units, all there already"),
    ],
)
def test_what_was_pushed_is_counted(pushed: Pushed, text: str) -> None:
    assert str(pushed) == text


@posix("nvcc that flashdepot could start")
def test_a_machine_that_compiled_nothing_publishes_what_another_has_signed(
    builder: Machine, user: Machine, server: RemoteServer, tmp_path: Path
) -> None:
    line = builder.key("factory")
    builder.run("remote", "add", "team", server.url, "--push", "--timeout", "30")
    made = builder.get()
    user.run("remote", "add", "team", server.url, "--timeout", "30")
    public = tmp_path / "public"
    words = ("index", str(public), "--from", "team", "--depot", str(user.depot))
    with pytest.raises(Exception, match="There is no wheel for the index"):
        user.run(*words)
    assert "a key that you do not trust" in user.said

    user.run("keys", "trust", line)
    user.key("shop")
    (added,) = user.json(*words)["added"]
    (row,) = read_json(public / RECORD_NAME)["wheels"]
    assert row["recipe_key"] == made["recipe_key"]
    assert row["signers"] == ["factory", "shop"]
    signed = read_envelopes((public / "files" / f"{added}.signed.json").read_bytes())
    assert {json.loads(envelope.payload)["predicateType"] for envelope in signed} == {
        "urn:flashdepot:library:1",
        "urn:flashdepot:wheel:1",
    }
    assert '.signed.json">factory, shop</a>' in (public / "index.html").read_text()
    assert not (user.depot / "toolchains").exists(), "nothing was compiled"

    server.seen.clear()
    assert user.json(*words)["added"] == []
    assert not [path for method, path in server.seen if method == "PUT"]

    server.fault = lambda _method, _path: Answer(500)
    with pytest.raises(NetworkError, match="500"):
        user.run(*words)
    assert read_json(public / RECORD_NAME)["wheels"] == [row]
