"""What can go wrong with a push, what a machine publishes that compiled nothing, and the bytes that are written and signed."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.depot.actions import Output
from flashdepot.errors import NetworkError, UsageError
from flashdepot.files.documents import read_json, write_record
from flashdepot.model.index_record import RECORD_NAME
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.remotes.keys import SigningKey
from flashdepot.remotes.push import Pushed
from flashdepot.remotes.statements import (
    Edition,
    IndexStatement,
    LibraryStatement,
    StateStatement,
    UnitStatement,
    library_places,
    recipe_place,
    request_place,
    unit_place,
)
from flashdepot.remotes.stores import FolderBackend, open_store
from flashdepot.remotes.trust import Envelope, read_envelopes, write_envelopes
from flashdepot.remotes.user_settings import UserSettings
from support.depots import make_manifest, make_record, make_request
from support.machines import Party
from support.own_world import CONFIG
from support.servers import Answer, answers
from support.tools import posix

BLOBS = "blobs/"
KILLS = int(os.environ.get("FLASHDEPOT_PUSH_KILLS", "6"))


def test_what_is_there_is_not_sent_again(pushed, maker, team, server) -> None:
    server.seen.clear()
    again = maker.push(team, pushed)
    assert (again.blobs, again.records) == (0, 0)
    assert "PUT" not in {method for method, _ in server.seen}


def test_a_dry_run_sends_nothing_and_says_what_a_push_then_does(maker, team, server) -> None:
    maker.key()
    manifest = maker.store()
    planned = maker.push(team, manifest, dry_run=True)
    assert "PUT" not in {method for method, _ in server.seen}
    assert str(planned).endswith(" to send")
    done = maker.push(team, manifest)
    assert done.blobs > 0
    assert replace(planned, planned=False) == done
    assert str(maker.push(team, manifest, dry_run=True)) == str(maker.push(team, manifest))


def test_records_are_written_after_all_blobs(pushed, server) -> None:
    puts = [path.partition("/")[0] for method, path in server.seen if method == "PUT"]
    assert puts == sorted(puts)
    assert set(puts) == {"blobs", "signed"}


@pytest.mark.parametrize(("status", "hint"), [(401, "netrc"), (403, "netrc"), (405, "PUT"), (500, "PUT"), (507, "PUT")])
def test_a_remote_that_takes_nothing_gets_no_record(status, hint, maker, reader, team, server) -> None:
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


def test_a_folder_on_a_full_disk_says_what_helps(tmp_path, monkeypatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(FolderBackend, "write", full)
    with pytest.raises(NetworkError, match="cannot be written: No space left on device") as caught:
        open_store(RemoteSettings("disk", tmp_path.as_uri())).write("blobs/one", b"bytes")
    assert caught.value.hint.startswith("Free space there")


def test_a_push_needs_a_key(maker, team, server) -> None:
    with pytest.raises(UsageError, match="no key to sign with"):
        maker.push(team, maker.store())
    assert not server.files


def test_a_blob_that_was_cut_short_on_the_remote_is_sent_again(pushed, maker, reader, team, server) -> None:
    for path in server.blobs():
        server.files[path] = server.files[path][:-3]
    maker.push(team, pushed)
    assert reader.fetch(team) == pushed


@pytest.mark.slow
def test_two_that_push_at_once_lose_nothing(maker, new_party, reader, team, server) -> None:
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
        taken = other.remotes(replace(team, timeout=30.0)).all()[0].stock([recipe_place(manifest.recipe_key)])
        assert [library.summary.recipe_key for library in taken] == [manifest.recipe_key]
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
def test_what_was_pushed_is_counted(pushed, text) -> None:
    assert str(pushed) == text


@posix("nvcc that flashdepot could start")
def test_a_machine_that_compiled_nothing_publishes_what_another_has_signed(builder, user, server, tmp_path) -> None:
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
    assert added in (public / "index.html").read_text()
    assert not (user.depot / "toolchains").exists(), "nothing was compiled"

    server.seen.clear()
    assert user.json(*words)["added"] == []
    assert not [path for method, path in server.seen if method == "PUT"]

    server.fault = lambda _method, _path: Answer(500)
    with pytest.raises(NetworkError, match="500"):
        user.run(*words)
    assert read_json(public / RECORD_NAME)["wheels"] == [row]


MANIFEST = make_manifest(c_layer="e" * 64, untested_gpus={"fa4": make_manifest().sass}, actions={"a": "f" * 64})
RECORD = replace(
    make_record(**{"{upstream}/a.cu": "1" * 64, "/usr/include/b.h": "2" * 64}),
    outputs={"object": Output("3" * 64, 600), "log": Output("4" * 64, 7)},
    created="2026-11-23T12:00:00+00:00",
)
EDITION = Edition(1_700_000_000, date(2027, 5, 22))
UNIT, NAMES = UnitStatement.of(RECORD)
PAYLOADS = {
    "unit": UNIT.payload(),
    "names": NAMES,
    "library": LibraryStatement.of(MANIFEST).payload(),
    "state": StateStatement(EDITION.version, EDITION.expires, {"b" * 64: "2" * 64, "a" * 64: "1" * 64}).payload(),
    "index": IndexStatement("flashdepot-index.json", "5" * 64, EDITION).payload(),
}
KEYS = """\
unsigned = [
    "https://example.org/simple",
]
signatures = true

[[key]]
key = "ci:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
remotes = [
    "team",
]
expires = "2027-01-02"

[[key]]
key = "other:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
revoked = "2026-01-02"
"""
REMOTES = """\
[[remote]]
name = "team"
url = "https://example.org/x"
push = true
builders = 2
keys = [
    "ci:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
]
timeout = 3.5

[[remote]]
name = "disk"
url = "file:///mnt/x"
"""


def signing_key() -> SigningKey:
    pem = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    return SigningKey.parse("ci", pem.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), "here")


def envelopes() -> bytes:
    signed = Envelope(PAYLOADS["state"]).signed(signing_key())
    return write_envelopes([signed, Envelope(PAYLOADS["unit"])])


def places() -> bytes:
    found = (*library_places(MANIFEST), request_place(make_request(c_layer="e" * 64)), unit_place("a" * 64))
    return "\n".join(found).encode()


WRITTEN = {
    **PAYLOADS,
    "envelopes": envelopes(),
    "places": places(),
    "action": json.dumps(RECORD.to_json(), sort_keys=True).encode(),
}


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("unit", "865b6902131d087a"),
        ("names", "677605f903607555"),
        ("library", "2d22ab94f631f69a"),
        ("state", "27d5f67c9b64fa6a"),
        ("index", "2465444fa8e1958e"),
        ("envelopes", "fffe3661515b5e69"),
        ("places", "d2557d2cea4ae8a1"),
        ("action", "14827de6550bf201"),
    ],
)
def test_what_is_written_is_what_was_always_written(kind, digest) -> None:
    assert hashlib.sha256(WRITTEN[kind]).hexdigest()[:16] == digest, WRITTEN[kind]


def test_a_stored_record_has_the_same_bytes(tmp_path) -> None:
    write_record(tmp_path / "x.json", RECORD.to_json())
    assert hashlib.sha256((tmp_path / "x.json").read_bytes()).hexdigest()[:16] == "9780768f751eae2c"
    (tmp_path / "x.o").write_bytes(b"object")
    depot = Depot(tmp_path / "depot")
    record = depot.actions.record(make_record(), tmp_path / "x.o")
    text = depot.layout.intent(record.intent_key).read_bytes()
    assert hashlib.sha256(text).hexdigest()[:16] == "fb8352f6ab2d61b0"


def test_the_settings_of_a_user_have_the_same_text(tmp_path) -> None:
    settings = UserSettings(tmp_path)
    ci, other = PublicKey("ci", "01" * 32), PublicKey("other", "02" * 32)
    settings.write_keys([TrustedKey(ci, ("team",), date(2027, 1, 2)), TrustedKey(other, (), None, date(2026, 1, 2))])
    settings.set_unsigned("https://example.org/simple", unsigned=True)
    settings.add_remote(RemoteSettings("team", "https://example.org/x", push=True, builders=2, keys=(ci,), timeout=3.5))
    settings.add_remote(RemoteSettings("disk", "file:///mnt/x"))
    assert (tmp_path / "keys.toml").read_text() == KEYS
    assert (tmp_path / "remotes.toml").read_text() == REMOTES
    assert settings.trusted_keys()[0] == TrustedKey(ci, ("team",), date(2027, 1, 2))
