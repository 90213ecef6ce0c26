"""Who is trusted: signatures that are missing, foreign, too few, too old, of other bytes."""

import json
from datetime import date, timedelta

import pytest
from msgspec.structs import replace

from flashdepot.remotes import trust
from flashdepot.remotes.statements import library_places
from flashdepot.remotes.trust import Envelope, read_envelopes, write_envelopes
from flashdepot.remotes.user_settings import today
from support.depots import make_record, store_library


@pytest.mark.parametrize("year", [1970, 2038])
def test_a_clock_that_is_wrong_ends_trust_in_keys_that_expire_and_says_so(
    year, pushed, maker, new_party, team, monkeypatch
) -> None:
    user = new_party("user")
    (trusted,) = maker.settings.trusted_keys()
    user.trust(trusted.key, expires=today() + timedelta(days=30))
    monkeypatch.setattr(trust, "today", lambda: date(year, 1, 1))
    assert (user.fetch(team) is None) == (year > 2030)
    if year > 2030:
        assert "this machine's clock says 2038-01-01" in user.warnings[0]
        assert "set it" in user.warnings[0]
    else:
        assert not user.warnings


def test_a_record_under_another_name_is_not_taken(pushed, maker, reader, team, server) -> None:
    library, unit = (next(p for p in server.records() if f"/{kind}/" in p) for kind in ("libraries", "units"))
    other = make_record("bwd_hdim64_bf16")
    server.files[f"signed/units/{other.intent_key[:2]}/{other.intent_key}.json"] = server.files[unit]
    assert reader.fetch_unit(team, record=other) is None
    assert "is about something else" in reader.warnings[-1]
    server.files[unit] = server.files[library]
    assert reader.fetch_unit(team) is None
    assert "not a statement of the kind" in reader.warnings[-1]


def test_a_record_that_was_changed_after_it_was_signed_is_refused(pushed, reader, team, server) -> None:
    for path in server.records():
        changed = [
            Envelope(envelope.payload.replace(b'"size":', b'"size":1'), envelope.signatures)
            for envelope in read_envelopes(server.files[path])
        ]
        server.files[path] = write_envelopes(changed)
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert "changed after it was signed" in reader.warnings[0]


def test_what_nobody_signed_is_refused_unless_the_user_takes_it(pushed, reader, team, server) -> None:
    for path in server.records():
        bare = [Envelope(envelope.payload) for envelope in read_envelopes(server.files[path])]
        server.files[path] = write_envelopes(bare)
    assert reader.fetch(team) is None
    assert "nobody has signed it" in reader.warnings[0]
    assert "--unsigned" in reader.warnings[0]
    assert reader.fetch(replace(team, unsigned=True)) == pushed


def test_a_key_that_is_not_trusted_convinces_nobody(pushed, new_party, team) -> None:
    stranger = new_party("stranger")
    stranger.key("other")
    assert stranger.fetch(team) is None
    assert stranger.fetch_unit(team) is None
    assert "a key that you do not trust" in stranger.warnings[0]
    assert "flashdepot keys trust" in stranger.warnings[0]


@pytest.mark.parametrize("days", [1, 0])
def test_a_key_is_trusted_up_to_its_last_day(days, pushed, maker, new_party, team) -> None:
    late = new_party("late")
    (trusted,) = maker.settings.trusted_keys()
    late.trust(trusted.key, expires=today() - timedelta(days=days))
    assert (late.fetch(team) is None) == bool(days)
    assert not days or "expired on" in late.warnings[0]


def test_a_revoked_key_convinces_nobody_even_where_the_remote_names_it(pushed, reader, team) -> None:
    key = reader.settings.revoke("ci").key
    assert reader.fetch(replace(team, keys=(key,))) is None
    assert "was revoked" in reader.warnings[0]


def test_of_two_signers_it_is_said_what_is_wrong_with_each(pushed, new_party, reader, team) -> None:
    second = new_party("second")
    key = second.key("second")
    second.push(team, second.store())
    reader.settings.revoke("ci")
    assert reader.fetch(team) is None
    assert "the key ci was revoked on " in reader.warnings[0]
    assert f"and it is signed by a key that you do not trust ({key.id[:12]})" in reader.warnings[0]
    assert "another key. Ask its owner" in reader.warnings[0]
    assert "flashdepot keys trust NAME:BASE64" in reader.warnings[0]


def test_a_key_that_is_trusted_for_one_remote_convinces_nobody_of_another(pushed, maker, new_party, team) -> None:
    careful = new_party("careful")
    (trusted,) = maker.settings.trusted_keys()
    careful.trust(trusted.key, remotes=("other",))
    assert careful.fetch(team) is None
    assert "trusted for other only" in careful.warnings[0]
    assert careful.fetch(replace(team, name="other")) == pushed


def test_several_builders_can_be_demanded(pushed, new_party, reader, team) -> None:
    demanding = replace(team, builders=2)
    assert reader.fetch(demanding) is None
    assert "2 builders must have signed it" in reader.warnings[0]
    second = new_party("second")
    reader.trust(second.key("second"))
    second.push(team, second.store())
    assert reader.fetch(demanding) == pushed


def test_a_second_builder_with_other_bytes_does_not_count(pushed, new_party, reader, team) -> None:
    second = new_party("second")
    reader.trust(second.key("second"))
    second.push(team, store_library(second.depot, second.folder / "files", name="two", recipe_key=pushed.recipe_key))
    assert reader.fetch(replace(team, builders=2)) is None


def test_records_of_strangers_crowd_nobody_out(pushed, new_party, maker, reader, team, server) -> None:
    place = library_places(pushed)[0]
    junk = [Envelope(json.dumps({"n": n}).encode(), (("0" * 64, "00" * 64),)) for n in range(40)]
    server.files[place] = write_envelopes(junk)
    maker.push(team, maker.store("two"))
    maker.push(team, maker.store("one"))
    found = read_envelopes(server.files[place])
    assert sum(len(envelope.payload) > 100 for envelope in found) == 2
    assert reader.fetch(team) is not None


def test_a_record_that_makes_no_sense_among_others_is_skipped(pushed, reader, team, server) -> None:
    for path in server.records():
        file = json.loads(server.files[path])
        server.files[path] = json.dumps({**file, "records": [{"payload": 1}, "x", *file["records"]]}).encode()
    assert reader.fetch(team) == pushed
    assert not reader.warnings
