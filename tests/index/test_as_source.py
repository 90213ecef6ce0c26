"""`resolve` and `install` with our index as a source: judged by its record, verified by digest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashdepot.depot import Depot
from flashdepot.model.index_record import RECORD_NAME
from flashdepot.model.limits import joined
from flashdepot.model.remote import PublicKey, TrustedKey
from flashdepot.remotes.keys import new_key
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.resolve.lock import LOCK_NAME, read_lock
from support.tools import flashdepot_here
from support.wheels import WheelMaker

Resolve = Callable[..., tuple[int, Any]]
FACTS = ("--torch", "2.9.1+cu128", "--python-tag", "cp312", "--platform", "manylinux_2_31_x86_64")


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """Run `flashdepot resolve --json`; gives the exit code and the document."""

    def ask(*words: str) -> tuple[int, Any]:
        done = flashdepot_here("resolve", *FACTS, *words, "--depot", tmp_path / "depot", "--json")
        return done.returncode, json.loads(done.stdout)

    return ask


@pytest.fixture
def whole(tmp_path: Path) -> WheelMaker:
    """Makes wheels with all units of a published version."""
    return WheelMaker(tmp_path / "made", published="2.8.3.post2")


@pytest.fixture
def maker(whole: WheelMaker) -> WheelMaker:
    return whole


def test_a_wheel_of_both_families_is_chosen_where_both_are_tested_unless_one_is_named(
    resolve, maker, publish, address, tmp_path, monkeypatch
) -> None:
    both, plain = maker.make("90", more=("fa4",)), maker.make("80,90")
    facts = ("--source", f"index:{address}", "--gpu", "9.0", "--driver", "580.95")
    publish(plain.path)
    assert resolve(*facts)[1]["chosen"]["name"] == plain.path.name
    publish(both.path)
    assert resolve(*facts)[1]["chosen"]["name"] == both.path.name
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flashdepot.toml").write_text('families = "fa2"\n')
    assert resolve(*facts)[1]["chosen"]["name"] == plain.path.name


def test_a_wheel_with_kernels_that_nobody_asked_for_is_not_chosen(
    resolve, maker, publish, address, tmp_path, monkeypatch
) -> None:
    publish(maker.make("90", more=("fa4",)).path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flashdepot.toml").write_text('families = "fa2"\n')
    status, document = resolve("--source", f"index:{address}", "--gpu", "9.0", "--driver", "580.95")
    assert status == 4
    assert "It has kernels of fa4 too, which were not asked for." in json.dumps(document)


@pytest.mark.parametrize(
    ("gpu", "driver", "code"),
    [("8.9", "580.95", "80"), ("9.0", "590.1", "90"), ("12.0", "580.95", "120"), ("9.0", "535.1", "cu128")],
)
def test_the_smallest_wheel_that_fits_the_machine_is_chosen(
    resolve, maker, publish, address, gpu, driver, code
) -> None:
    made = {sass: maker.make(sass) for sass in ("80,90,120", "80", "90", "120")}
    made["cu128"] = maker.make("80,90", cuda="12.8")
    publish(*(wheel.path for wheel in made.values()))
    status, document = resolve("--source", f"index:{address}", "--gpu", gpu, "--driver", driver)
    chosen = document["chosen"]
    assert (status, chosen["origin"], chosen["name"]) == (0, "index", made[code].path.name)
    assert (chosen["sha256"], chosen["size"]) == (made[code].sha256, made[code].size)
    assert chosen["url"].startswith(f"{address}files/")
    assert f"#sha256={made[code].sha256}" in document["command"]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--gpu", "10.0", "--driver", "580.95"), "sass"),
        (("--gpu", "9.0", "--driver", "575.1"), "driver"),
        (("--gpu", "9.0", "--driver", "580.95", "--glibc", "2.17"), "libc"),
        (("--gpu", "9.0", "--driver", "580.95", "--profile", "full"), "selection"),
        (("--gpu", "9.0", "--driver", "580.95", "--version", "2.7"), ""),
    ],
)
def test_what_does_not_fit_is_not_taken_and_says_why(resolve, maker, publish, address, words, rule) -> None:
    publish(maker.make("80,90", profile="inference", libc="2.28").path)
    default = () if "--profile" in words else ("--profile", "inference")
    status, document = resolve("--source", f"index:{address}", *default, *words)
    assert (status, document["chosen"]) == (4, None)
    assert {reason["rule"] for miss in document["misfits"] for reason in miss["reasons"]} >= ({rule} if rule else set())


def test_a_folder_is_a_source_as_well(resolve, maker, publish, public) -> None:
    wheel = maker.make()
    publish(wheel.path)
    status, document = resolve("--source", f"index:{public}", "--gpu", "9.0", "--driver", "580.95")
    assert (status, document["chosen"]["name"]) == (0, wheel.path.name)
    assert document["chosen"]["url"].startswith(public.as_uri())


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("index:ftp://example.org/", 2),
        ("index:https://user:secret@example.org/", 2),
        ("index:nowhere", 2),
        ("index:http://127.0.0.1:9/", 7),
    ],
)
def test_what_is_not_an_index_is_named(resolve, source, code, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.net.errors.WAITS", (0.0, 0.0))
    status, document = resolve("--source", source, "--gpu", "9.0", "--driver", "580.95")
    assert (status, document["status"]) == (code, "error")
    assert "secret" not in document["message"]


@pytest.mark.parametrize("body", [b"{}", b"<html>", b"[" * 100_000, b'{"kind": "an index of flashdepot", "schema": 9}'])
def test_an_answer_that_is_not_a_record_is_refused(resolve, public, address, body) -> None:
    (public / RECORD_NAME).write_bytes(body)
    status, document = resolve("--source", f"index:{address}", "--gpu", "9.0", "--driver", "580.95")
    assert (status, document["status"]) == (7, "error")


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
class TestInstall:
    @pytest.fixture
    def maker(self, tmp_path: Path) -> WheelMaker:
        return WheelMaker(tmp_path / "made", Depot(tmp_path / "builder"))

    @pytest.fixture
    def options(self, maker: WheelMaker, address: str) -> tuple[str, ...]:
        upstream = str(maker.tree.root)
        return ("--source", f"index:{address}", "--upstream", upstream, "--profile", "quick", "--arch", "80", "--json")

    def test_it_is_installed_from_there_and_can_be_locked(
        self, command, environment, maker, publish, recorder, options, address
    ) -> None:
        wheel = maker.make("80,90", profile="quick", library=recorder)
        publish(wheel.path)
        done = command(*options)
        assert done.code == 0, done.err
        document = json.loads(done.out)
        assert (document["source"], document["wheel"]["sha256"]) == (f"index:{address}", wheel.sha256)
        assert document["version"] == wheel.version
        assert environment.imports("flash_attn")

    def test_other_bytes_on_the_server_are_refused(
        self, command, environment, maker, publish, recorder, options, public
    ) -> None:
        wheel = maker.make("80,90", profile="quick", library=recorder)
        publish(wheel.path)
        place = public / "files" / wheel.path.name
        place.write_bytes(place.read_bytes()[:-1] + b"X")
        before = environment.contents()
        done = command(*options)
        assert done.code == 6
        assert f"expected {wheel.sha256}" in done.err
        assert environment.contents() == before


def test_a_lock_pins_a_wheel_of_an_index_and_names_and_says_which_it_lacks(maker, publish, address, tmp_path) -> None:
    wheel, path, source = maker.make(), tmp_path / LOCK_NAME, ("--source", f"index:{address}")
    publish(wheel.path)

    def lock(*more: str, code: int = 0) -> str:
        machine = ("--gpu", "9.0", "--driver", "580.95", "--depot", tmp_path / "depot")
        done = flashdepot_here("lock", *FACTS, *machine, *more, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        return done.stdout

    def pinned() -> list[str]:
        return [name.distribution for name in read_lock(path).names]

    lock(*source)
    locked = read_lock(path)
    assert (locked.wheel.sha256, locked.wheel.source, str(locked.origin)) == (wheel.sha256, source[1], "index")
    lock("--check")
    lock(*source, "--names", "flash-attn-3")
    assert pinned() == ["flash-attn-3"]
    lock(*source, "--check", "--names", "flash-attn-3")
    said = lock(*source, "--check", "--names", "flash-attn-4", code=4)
    assert "It pins no wheel of it, and this flashdepot makes flash_attn_4-" in said
    assert joined(["flashdepot", "lock", "--upgrade", "--names", "flash-attn-3,flash-attn-4"]) in said
    lock(*source, "--names", "flash-attn-3,flash-attn-4")
    lock(*source, "--upgrade")
    assert pinned() == ["flash-attn-3", "flash-attn-4"]
    path.write_text(path.read_text().replace(read_lock(path).names[0].sha256, "ab" * 32))
    assert "of other bytes" in lock(*source, "--check", code=4)


def test_an_index_on_a_server_is_trusted_by_its_signature(resolve, maker, publish, address, public) -> None:
    UserSettings.of_this_user().write_keys([TrustedKey(PublicKey("team", "ab" * 32))])
    publish(maker.make("80,90").path)
    code, document = resolve("--source", f"index:{address}", "--gpu", "9.0", "--driver", "580.95")
    assert code == 6
    assert "is not trusted: nobody has signed it" in document["message"]
    new_key(UserSettings.of_this_user(), "ci", None)
    publish(maker.make("90").path)
    assert resolve("--source", f"index:{address}", "--gpu", "9.0", "--driver", "580.95")[0] == 0
    (public / f"{RECORD_NAME}.signed.json").write_bytes(b"{}")
    assert resolve("--source", f"index:{address}", "--gpu", "9.0", "--driver", "580.95")[0] == 6
