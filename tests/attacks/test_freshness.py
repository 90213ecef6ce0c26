"""Yesterday's state of a remote, shown again: rollback, freeze, mix-and-match, and what only costs time."""

from collections.abc import Callable
from datetime import date, timedelta

import pytest

from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes import statements
from flashdepot.remotes.trust import Envelope, read_envelopes, write_envelopes
from flashdepot.remotes.user_settings import today
from support.depots import store_library
from support.machines import Party
from support.servers import RemoteServer

Move = Callable[[int], None]


@pytest.fixture
def days_later(monkeypatch: pytest.MonkeyPatch) -> Move:
    """Set the clock of this machine."""

    def move(days: int) -> None:
        now: date = today() + timedelta(days=days)
        monkeypatch.setattr(statements, "today", lambda: now)

    return move


def states(server: RemoteServer) -> list[str]:
    return [path for path in server.files if path.startswith("signed/state/")]


@pytest.fixture
def replaced(
    pushed: Manifest, maker: Party, team: RemoteSettings, server: RemoteServer
) -> tuple[dict[str, bytes], Manifest]:
    """The files of a remote before a library was made again with other bytes, and the new one."""
    before = dict(server.files)
    new = store_library(maker.depot, maker.folder / "again", name="two", recipe_key=pushed.recipe_key)
    maker.push(team, new)
    return before, new


def test_a_reader_of_a_newer_state_of_a_remote_takes_no_older_one(replaced, reader, team, server) -> None:
    opened = reader.remotes(team).all()[0]
    (key,) = [known.key for known in reader.settings.trusted_keys()]
    assert opened._state(key).version  # type: ignore[union-attr]
    newest = dict(server.files)
    server.files.clear()
    server.files.update(replaced[0])
    assert reader.fetch(team) is None
    assert "an older state" in reader.warnings[-1]
    server.files.update(newest)
    assert reader.fetch(team) == replaced[1]


def test_an_old_library_next_to_a_new_state_is_not_taken(replaced, reader, team, server) -> None:
    server.files.update({path: data for path, data in replaced[0].items() if path.startswith("signed/libraries/")})
    assert reader.fetch(team) is None
    assert "does not stand for" in reader.warnings[-1]


def test_a_state_that_is_shown_always_ends(pushed, maker, reader, team, days_later) -> None:
    days_later(181)
    assert reader.fetch(team) is None
    assert "to be trusted until" in reader.warnings[-1]
    assert "flashdepot depot push" in reader.warnings[-1]
    maker.push(team, pushed)
    assert reader.fetch(team) == pushed


def test_a_push_signs_the_state_again_when_half_its_time_is_over(pushed, maker, team, server, days_later) -> None:
    (place,) = states(server)
    before = server.files[place]
    maker.push(team, pushed)
    assert server.files[place] == before
    days_later(91)
    maker.push(team, pushed)
    assert server.files[place] != before


@pytest.mark.parametrize("how", ["gone", "of another key", "of another kind", "changed", "junk"])
def test_without_a_state_that_its_signer_signed_nothing_is_taken(how, pushed, new_party, reader, team, server) -> None:
    (place,) = states(server)
    data = server.files.pop(place)
    (envelope,) = read_envelopes(data)
    if how == "of another key":
        stranger = new_party("stranger")
        stranger.key()
        stranger.push(team, stranger.store())
        server.files[place] = server.files[states(server)[0]]
    elif how == "of another kind":
        server.files[place] = server.files[next(path for path in server.records() if "libraries" in path)]
    elif how == "changed":
        later = envelope.payload.replace(str(today().year + 1).encode(), b"2999").replace(b'"version":', b'"version":9')
        server.files[place] = write_envelopes([Envelope(later, envelope.signatures)])
    elif how == "junk":
        server.files[place] = b"[" * 5000
    assert reader.fetch(team) is None
    assert reader.warnings
    server.files[place] = data
    assert reader.fetch(team) == pushed


def test_two_machines_with_one_key_stand_for_what_both_have_pushed(pushed, maker, new_party, reader, team) -> None:
    second = new_party("second")
    second.settings.private_keys.mkdir(parents=True)
    pem = maker.settings.private_keys / "ci.pem"
    (second.settings.private_keys / "ci.pem").write_bytes(pem.read_bytes())
    (second.settings.private_keys / "ci.pem").chmod(0o600)
    second.folder.mkdir(exist_ok=True)
    other = store_library(second.depot, second.folder / "files", name="three", recipe_key="7" * 64)
    second.push(team, other)
    opened = reader.remotes(team).all()[0]
    assert [found.summary.recipe_key for found in opened.stock([statements.recipe_place("7" * 64)])] == ["7" * 64]
    assert [found.summary.recipe_key for found in opened.stock([statements.recipe_place(pushed.recipe_key)])] == [
        pushed.recipe_key
    ]
    assert not reader.warnings


@pytest.mark.parametrize("text", ["", "[]", '{"x": "y"}', "\x00"])
def test_a_memory_that_is_damaged_opens_nothing(text, pushed, reader, team) -> None:
    (reader.settings.folder / "seen.json").write_text(text)
    assert reader.fetch(team) is None
    assert "seen.json cannot be used" in reader.warnings[-1]


def test_a_record_with_55000_signatures_is_skipped_and_replaced(pushed, maker, reader, team, server) -> None:
    junk = tuple((f"{number:064x}", "00" * 16) for number in range(55_000))
    for place in server.records():
        (right,) = read_envelopes(server.files[place])
        server.files[place] = write_envelopes([Envelope(right.payload, (*junk[:2000], *right.signatures)), right])
        assert read_envelopes(server.files[place]) == [right]
    assert reader.fetch(team) == pushed
    for place in server.records():
        (right,) = read_envelopes(server.files[place])
        server.files[place] = write_envelopes([Envelope(right.payload, junk[:2000])])
    maker.push(team, pushed)
    assert all(len(read_envelopes(server.files[place])) == 1 for place in server.records())
