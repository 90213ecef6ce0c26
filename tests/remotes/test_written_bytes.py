"""The bytes that are written and signed: other releases and other machines read them."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.depot.actions import Output
from flashdepot.files.documents import write_record
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.remotes.keys import SigningKey
from flashdepot.remotes.statements import (
    Edition,
    IndexStatement,
    LibraryStatement,
    StateStatement,
    UnitStatement,
    library_places,
    request_place,
    unit_place,
)
from flashdepot.remotes.trust import Envelope, write_envelopes
from flashdepot.remotes.user_settings import UserSettings
from support.depots import make_manifest, make_record, make_request

MANIFEST = make_manifest(c_layer="e" * 64, unproven={"fa4": make_manifest().sass}, actions={"a": "f" * 64})
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
    "state": StateStatement(EDITION, {"b" * 64: "2" * 64, "a" * 64: "1" * 64}).payload(),
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
def test_what_is_written_is_what_was_always_written(kind: str, digest: str) -> None:
    assert hashlib.sha256(WRITTEN[kind]).hexdigest()[:16] == digest, WRITTEN[kind]


def test_a_stored_record_has_the_same_bytes(tmp_path: Path) -> None:
    write_record(tmp_path / "x.json", RECORD.to_json())
    assert hashlib.sha256((tmp_path / "x.json").read_bytes()).hexdigest()[:16] == "9780768f751eae2c"
    (tmp_path / "x.o").write_bytes(b"object")
    depot = Depot(tmp_path / "depot")
    record = depot.actions.record(make_record(), tmp_path / "x.o")
    text = depot.layout.intent(record.intent_key).read_bytes()
    assert hashlib.sha256(text).hexdigest()[:16] == "fb8352f6ab2d61b0"


def test_the_settings_of_a_user_have_the_same_text(tmp_path: Path) -> None:
    settings = UserSettings(tmp_path)
    ci, other = PublicKey("ci", "01" * 32), PublicKey("other", "02" * 32)
    settings.write_keys([TrustedKey(ci, ("team",), date(2027, 1, 2)), TrustedKey(other, (), None, date(2026, 1, 2))])
    settings.set_unsigned("https://example.org/simple", unsigned=True)
    settings.add_remote(RemoteSettings("team", "https://example.org/x", push=True, builders=2, keys=(ci,), timeout=3.5))
    settings.add_remote(RemoteSettings("disk", "file:///mnt/x"))
    assert (tmp_path / "keys.toml").read_text() == KEYS
    assert (tmp_path / "remotes.toml").read_text() == REMOTES
    assert settings.trusted_keys()[0] == TrustedKey(ci, ("team",), date(2027, 1, 2))
