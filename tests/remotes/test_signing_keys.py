"""The keys of a user: made, handed out, replaced, withdrawn."""

import os
import shlex
import stat
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.model.remote import PublicKey, RemoteSettings
from flashdepot.remotes.keys import VARIABLE, choose_key, rotate_key
from flashdepot.remotes.trust import read_envelopes
from support.machines import Party


def private(party: Party, name: str = "ci") -> Path:
    return party.settings.private_keys / f"{name}.pem"


def test_a_key_is_made_for_its_owner_only_and_its_line_is_the_answer(user) -> None:
    line = user.run("keys", "new", "ci").stdout.strip()
    assert str(PublicKey.parse(line)) == line
    path = user.settings / "flashdepot" / "keys" / "ci.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name == "nt"
    assert "PRIVATE" not in user.said + line
    (row,) = user.json("keys", "ls")["keys"]
    assert (row["key"], row["state"], row["own"]) == (line, "trusted", True)


def test_a_name_is_taken_once(user) -> None:
    user.key()
    with pytest.raises(UsageError, match="trust a key ci already"):
        user.key()


@pytest.mark.parametrize("line", ["ci", "ci:", "ci:AAAA", "../x:" + "A" * 43 + "=", "ci:" + "A" * 43, "ci:" + "!" * 44])
def test_what_is_not_a_key_is_not_trusted(line, user) -> None:
    with pytest.raises(UsageError, match="not a public key"):
        user.run("keys", "trust", line)


def test_how_far_a_key_is_trusted_is_said_and_a_day_that_is_over_is_refused(user, builder) -> None:
    line = builder.key()
    with pytest.raises(UsageError, match="2020-01-31 is over: this machine's clock says"):
        user.run("keys", "trust", line, "--expires", "2020-01-31")
    assert user.json("keys", "ls")["keys"] == []
    user.run("keys", "trust", line, "--expires", "2199-12-31", "--remote", "team")
    assert "What ci has signed is trusted until 2199-12-31, only in team." in user.said


def test_another_key_under_a_trusted_name_is_refused(user, builder) -> None:
    user.key()
    with pytest.raises(UsageError, match="You trust another key as ci"):
        user.run("keys", "trust", builder.key())


def test_a_revoked_key_is_not_trusted_again_and_another_one_of_its_name_is(user, builder) -> None:
    line = builder.key()
    user.run("keys", "trust", line)
    user.run("keys", "revoke", "ci")
    with pytest.raises(UsageError, match="was revoked on"):
        user.run("keys", "trust", line)
    user.key()
    revoked, trusted = [key["state"] for key in user.json("keys", "ls")["keys"]]
    assert revoked.startswith("revoked")
    assert trusted == "trusted"


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        pytest.param(
            lambda path: path.chmod(0o640),
            IntegrityError,
            "can be read or written by others",
            marks=pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions"),
        ),
        (
            lambda path: path.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            UsageError,
            "not an ed25519 key",
        ),
    ],
    ids=["others may read it", "it is another file"],
)
def test_a_file_that_holds_no_secret_key_signs_nothing(maker, team, change, error, said) -> None:
    maker.key()
    change(private(maker))
    with pytest.raises(error, match=said):
        maker.push(team, maker.store())


def test_a_secret_of_a_ci_system_signs(maker, reader, team, monkeypatch) -> None:
    reader.trust(maker.key())
    pem = private(maker).read_text()
    private(maker).unlink()
    monkeypatch.setenv("FLASHDEPOT_SIGNING_KEY", pem)
    manifest = maker.store()
    maker.push(team, manifest)
    assert reader.fetch(team) == manifest


def test_of_several_keys_one_must_be_named(maker) -> None:
    maker.key("one")
    maker.key("two")
    with pytest.raises(UsageError, match="several keys: one, two") as caught:
        choose_key(maker.settings)
    command = caught.value.hint.removeprefix("Name one: ")
    assert command == (
        f'set "{VARIABLE}={private(maker, "one")}"'
        if os.name == "nt"
        else f"export {VARIABLE}={shlex.quote(str(private(maker, 'one')))}"
    )
    maker.settings.revoke("one")
    assert choose_key(maker.settings).public.name == "two"


def test_after_a_rotation_both_signatures_stand_and_either_reader_is_served(
    pushed, maker, reader, new_party, team, server
) -> None:
    old = private(maker).read_bytes()
    made = rotate_key(maker.settings, None, 30, None)
    assert private(maker).read_bytes() != old
    maker.push(team, pushed)
    assert {
        len(envelope.signatures) for path in server.records() for envelope in read_envelopes(server.files[path])
    } == {2}
    late = new_party("late")
    late.trust(made.public)
    assert late.fetch(team) == pushed
    assert reader.fetch(team) == pushed


def test_the_old_key_of_a_rotation_is_trusted_for_the_days_that_were_given(maker) -> None:
    maker.key()
    rotate_key(maker.settings, "ci", 0, None)
    old, new = maker.settings.trusted_keys()
    assert old.expires is not None
    assert new.expires is None
    assert (old.key.name.startswith("ci-until-"), new.key.name) == (True, "ci")


def test_a_list_of_keys_that_cannot_be_read_stops_what_needs_it(maker, team) -> None:
    maker.key()
    (maker.settings.folder / "keys.toml").write_text("key = 1\n")
    with pytest.raises(FlashdepotError, match=r"keys\.toml cannot be used: key is 1"):
        maker.fetch(team)


@pytest.mark.parametrize("url", ["http://example.org/x", "http://10.0.0.1/x"])
def test_unsigned_records_are_not_read_over_a_line_that_anybody_can_write_to(url) -> None:
    with pytest.raises(ValueError, match="anybody on the way"):
        RemoteSettings("x", url, unsigned=True)


def test_each_index_without_a_signature_is_taken_and_given_up_by_itself(user) -> None:
    one, other = "https://one.example/simple/", "https://other.example/simple/"
    user.run("keys", "unsigned", one)
    user.run("keys", "unsigned", other)
    assert user.json("keys", "ls")["unsigned"] == [one, other]
    user.run("keys", "unsigned", one, "--remove")
    assert user.json("keys", "ls")["unsigned"] == [other]
