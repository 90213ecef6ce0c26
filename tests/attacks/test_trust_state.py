"""Trust that is withdrawn stays withdrawn, and keys survive what happens while they are replaced."""

import errno
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.remotes import keys, statements
from flashdepot.remotes.keys import SigningKey, choose_key, new_key, rotate_key
from flashdepot.remotes.user_settings import UserSettings, today
from flashdepot.resolve.own_indexes import read_index_record
from support.own_world import CONFIG
from support.tools import run_program

KEY = PublicKey("ci", "ab" * 32)
EMPTY = '{"schema": 1, "kind": "an index of flashdepot", "url": "", "wheels": []}'


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserSettings:
    monkeypatch.setenv(CONFIG, str(tmp_path / "config"))
    monkeypatch.delenv("FLASHDEPOT_SIGNING_KEY", raising=False)
    return UserSettings.of_this_user()


@pytest.fixture
def unsigned_index(tmp_path: Path) -> str:
    """An index that nobody has signed."""
    folder = tmp_path / "public"
    folder.mkdir()
    (folder / "flashdepot-index.json").write_text(EMPTY)
    return f"{folder.as_uri()}/"


def trust_and_revoke(settings: UserSettings) -> None:
    settings.trust(TrustedKey(KEY))
    settings.revoke("ci")


def add_and_remove_a_remote(settings: UserSettings) -> None:
    settings.add_remote(RemoteSettings("team", "https://example.org", keys=(KEY,)))
    settings.remove_remote("team")


def replace_the_keys_of_a_remote(settings: UserSettings) -> None:
    settings.add_remote(RemoteSettings("team", "https://example.org", keys=(KEY,)))
    settings.add_remote(RemoteSettings("team", "https://example.org"))


def lose_the_list(settings: UserSettings) -> None:
    new_key(settings, "ci", None)
    (settings.folder / "keys.toml").unlink()


WAYS: dict[str, Callable[[UserSettings], None]] = {
    "revoked": trust_and_revoke,
    "of one remote": lambda settings: settings.trust(TrustedKey(KEY, ("team",))),
    "expired": lambda settings: settings.trust(TrustedKey(KEY, expires=today() - timedelta(days=9))),
    "named by a remote": lambda settings: settings.add_remote(RemoteSettings("t", "https://example.org", keys=(KEY,))),
    "named by a remote that was removed": add_and_remove_a_remote,
    "named by a remote that was changed": replace_the_keys_of_a_remote,
    "own, without its list": lose_the_list,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_user_who_ever_trusted_a_key_takes_no_unsigned_index(way, settings, unsigned_index) -> None:
    assert read_index_record(unsigned_index).wheels == ()
    WAYS[way](settings)
    with pytest.raises(IntegrityError, match="nobody has signed it"):
        read_index_record(unsigned_index)


def test_only_an_explicit_word_about_this_index_ends_that(user, unsigned_index, tmp_path) -> None:
    folder = str(tmp_path / "public")
    user.run("keys", "trust", str(KEY))
    user.run("keys", "unsigned", folder)
    assert user.json("keys", "ls")["unsigned"] == [unsigned_index]
    with user._here():
        assert read_index_record(unsigned_index).wheels == ()
        with pytest.raises(IntegrityError):
            read_index_record(unsigned_index.replace("public", "./public"))
    user.run("keys", "unsigned", folder, "--remove")
    with user._here(), pytest.raises(IntegrityError):
        read_index_record(unsigned_index)


def test_keys_of_a_project_that_was_allowed_count(user, unsigned_index, tmp_path) -> None:
    project = tmp_path / "flashdepot.toml"
    project.write_text(f'[[remote]]\nname = "team"\nurl = "https://example.org"\nkeys = ["{KEY}"]\n')
    user.run("trust", str(project))
    with user._here(), pytest.raises(IntegrityError, match="nobody has signed it"):
        read_index_record(unsigned_index)


@pytest.mark.parametrize("text", ["", "key = 1\n", "[[key]]\n", "\x00", "unsigned = 3\n", "signatures = 'no'\n"])
def test_a_list_of_keys_that_is_damaged_opens_nothing(text, settings, unsigned_index) -> None:
    new_key(settings, "ci", None)
    (settings.folder / "keys.toml").write_text(text)
    with pytest.raises(FlashdepotError):
        read_index_record(unsigned_index)


@pytest.mark.parametrize("way", ["only", "file", "pem", "renamed", "trusted again by another name"])
def test_a_revoked_key_of_ones_own_signs_nothing(way, settings, monkeypatch) -> None:
    made = new_key(settings, "ci", None)
    if way in {"file", "pem"}:
        monkeypatch.setenv("FLASHDEPOT_SIGNING_KEY", str(made.path) if way == "file" else made.path.read_text())
    elif way == "renamed":
        made.path.rename(made.path.with_name("other.pem"))
    settings.revoke(made.public.id[:10])
    if way.startswith("trusted"):
        with pytest.raises(UsageError, match="was revoked"):
            settings.trust(TrustedKey(PublicKey("other", made.public.public)))
    with pytest.raises(UsageError, match=r"was revoked on .*, and signs nothing") as caught:
        choose_key(settings)
    assert "flashdepot keys rotate ci" in caught.value.hint
    if way == "only":
        new = rotate_key(settings, "ci", 30, None)
        assert choose_key(settings).public == new.public
        assert [known.revoked is not None for known in settings.trusted_keys()] == [True, False]


def test_an_old_and_a_new_key_of_one_builder_are_not_two_builders(pushed, maker, team) -> None:
    rotate_key(maker.settings, "ci", 30, None)
    maker.push(team, pushed)
    opened = maker.remotes(RemoteSettings("team", team.url, builders=2)).all()[0]
    assert opened.stock([statements.recipe_place(pushed.recipe_key)]) == []
    assert "2 builders must have signed it" in maker.warnings[-1]


@pytest.mark.parametrize("make", [lambda s: new_key(s, "ci", None), lambda s: rotate_key(s, "ci", 3, None)])
@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_a_disk_that_is_full_leaves_no_part_of_a_key(failing, make, settings, monkeypatch) -> None:
    before = new_key(settings, "ci", None) if "rotate" in make.__code__.co_names[0] else None

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "fsync":
        monkeypatch.setattr(keys.os, "fsync", full)
    else:
        monkeypatch.setattr(SigningKey, "signer", property(full))
    with pytest.raises((FlashdepotError, OSError)):
        make(settings)
    monkeypatch.undo()
    left = sorted(path.name for path in settings.private_keys.glob("*"))
    assert left == (["ci.pem"] if before else [])


KILL_AT_EACH_STEP = """
import os, shutil, sys
from pathlib import Path

from flashdepot.remotes.keys import new_key, rotate_key
from flashdepot.remotes.keys import choose_key
from flashdepot.remotes.user_settings import UserSettings

EVENTS = {"open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.chmod"}
folder = Path(sys.argv[1])


def killed_at(step, make, settings):
    child = os.fork()
    if not child:
        left = step

        def hook(event, _arguments):
            nonlocal left
            if event in EVENTS:
                left -= 1
                if left == 0:
                    os._exit(9)

        sys.addaudithook(hook)
        make(settings)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def signs(settings):
    key = choose_key(settings)
    known = [one for one in settings.trusted_keys() if one.key.id == key.public.id]
    assert known and known[0].revoked is None, f"{key.public.name} signs and is not trusted"


def rotate(settings):
    rotate_key(settings, None, 30, None)


def again(settings):
    try:
        new_key(settings, "ci", None)
    except Exception:
        rotate(settings)


steps = 0
for kind in ("new", "rotate"):
    step = 0
    while True:
        step += 1
        here = folder / f"{kind}{step}"
        settings = UserSettings(here)
        if kind == "rotate":
            new_key(settings, "ci", None)
        if not killed_at(step, rotate if kind == "rotate" else lambda s: new_key(s, "ci", None), settings):
            break
        steps += 1
        if kind == "rotate":
            signs(settings)
            rotate(settings)
        else:
            again(settings)
        signs(settings)
        left = sorted(path.name for path in settings.private_keys.iterdir() if path.suffix in {".pem", ".next"})
        assert left == ["ci.pem"], left
        valid = [one.key.name for one in settings.trusted_keys()]
        assert len(valid) == len(set(valid)) or kind == "rotate", valid
print(steps)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="os.fork")
def test_a_kill_at_any_step_of_making_or_replacing_a_key_loses_none(tmp_path) -> None:
    assert int(run_program([sys.executable, "-c", KILL_AT_EACH_STEP, str(tmp_path)])) > 12
