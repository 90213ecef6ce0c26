"""The lock: written, read back, edited by people, judged against other facts, and given its digest."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from msgspec.structs import replace
from resolver_cases import CASES, Case

from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.model.candidate import Judged
from flashdepot.resolve.facts import NamedFacts, override
from flashdepot.resolve.lock import Lock, LockedName, judge_lock, lock_decision, read_lock, write_lock
from flashdepot.resolve.wheel_files import WheelFile, pin

DIGEST = "ab" * 32


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def chosen_of(case: Case) -> Judged:
    assert case.decision.chosen is not None
    return case.decision.chosen


OFFICIAL = case_of("torch 2.8 on an H100")
COMMUNITY = case_of("torch of CUDA 13 and wheels of others")
LOCK = Lock.of(chosen_of(OFFICIAL).candidate, OFFICIAL.facts)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.values["choice"].endswith(".whl")],
    ids=str,
)
def test_every_choice_that_can_be_locked_reads_back_as_it_was(case, tmp_path) -> None:
    lock = lock_decision(chosen_of(case), case.request, accept_unverified=True)
    write_lock(tmp_path / "flashdepot.lock", lock)
    found = read_lock(tmp_path / "flashdepot.lock")
    assert found == lock
    assert found.origin is chosen_of(case).candidate.origin
    assert found.wheel.published() == chosen_of(case).candidate.wheel._replace(seen=True)
    assert judge_lock(found, case.request) == chosen_of(case).reasons


def test_what_must_be_compiled_first_cannot_be_locked() -> None:
    case = case_of("torch of CUDA 13, ours serves it")
    with pytest.raises(IncompatibleError, match="is not compiled yet"):
        lock_decision(chosen_of(case), case.request, accept_unverified=True)


def test_the_first_download_pins_the_bytes_and_no_later_one(tmp_path) -> None:
    path = tmp_path / "flashdepot.lock"
    write_lock(path, LOCK)
    assert "is recorded in" in pin(path, LOCK, WheelFile("official", Path("a.whl"), DIGEST, 123))
    pinned = read_lock(path)
    assert (pinned.wheel.sha256, pinned.wheel.size) == (DIGEST, 123)
    assert pin(path, pinned, WheelFile("official", Path("a.whl"), "cd" * 32, 123)) == ""
    assert read_lock(path) == pinned


@pytest.mark.parametrize(
    ("named", "rule"),
    [
        (NamedFacts(torch="2.9.1+cu128"), "torch"),
        (NamedFacts(torch="2.8.0+cu118"), "cuda"),
        (NamedFacts(cxx11_abi=False), "cxx11-abi"),
        (NamedFacts(python_tag="cp311"), "python"),
        (NamedFacts(platform="win_amd64"), "platform"),
        (NamedFacts(glibc="2.28"), "libc"),
        (NamedFacts(gpu=("11.0",)), "sass"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_lock_is_judged_against_the_facts_of_today(named, rule) -> None:
    moved = replace(OFFICIAL.request, facts=override(OFFICIAL.facts, named))
    assert judge_lock(LOCK, OFFICIAL.request) == ()
    assert {reason.id for reason in judge_lock(LOCK, moved)} == {rule}


def test_the_names_of_a_lock_read_back_as_they_were(tmp_path) -> None:
    write_lock(tmp_path / "flashdepot.lock", replace(LOCK, names=(NAME,)))
    (found,) = read_lock(tmp_path / "flashdepot.lock").names
    assert (found, found.distribution) == (NAME, "flash-attn-3")


def edited(**changes: Any) -> dict[str, Any]:
    """The document of a lock with some values changed: ``wheel__url`` is one of a table, ``None`` takes the key away."""
    document = LOCK.to_toml()
    for name, value in changes.items():
        table, _, key = name.rpartition("__")
        place = document[table] if table else document
        if value is None:
            del place[key]
        else:
            place[key] = value
    return document


URL = LOCK.wheel.url
NAME = LockedName("flash_attn_3-3.0.0+flashdepot.1-py3-none-any.whl", DIGEST)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"schema": 2}, "schema"),
        ({"schema": "1"}, "schema"),
        ({"schema": None}, "schema"),
        ({"wheel": None}, "wheel is missing"),
        ({"wheel": "flash_attn"}, "wheel"),
        ({"facts": None}, "facts is missing"),
        ({"extra": 1}, "extra"),
        ({"wheel__extra": 1}, "wheel.extra"),
        ({"facts__extra": 1}, "facts.extra"),
        ({"wheel__filename": None}, "wheel.filename"),
        ({"wheel__filename": "../flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl"}, "wheel.filename"),
        ({"wheel__filename": "flash_attn.whl"}, "wheel.filename"),
        ({"wheel__filename": 3}, "wheel.filename"),
        ({"wheel__url": None}, "wheel.url"),
        ({"wheel__url": URL.replace("https", "http")}, "wheel.url"),
        ({"wheel__url": URL.replace("https", "ftp")}, "wheel.url"),
        ({"wheel__url": URL.replace("cp312", "cp311")}, "wheel.url"),
        ({"wheel__url": "https://[::1/x.whl"}, "wheel.url"),
        ({"wheel__url": URL + "\n"}, "wheel.url"),
        ({"wheel__url": "--extra-index-url=https://example.org"}, "wheel.url"),
        ({"wheel__sha256": "abc"}, "wheel.sha256"),
        ({"wheel__sha256": DIGEST.upper()}, "wheel.sha256"),
        ({"wheel__size": -1}, "wheel.size"),
        ({"wheel__size": "big"}, "wheel.size"),
        ({"wheel__size": True}, "wheel.size"),
        ({"wheel__source": "a b"}, "wheel.source"),
        ({"wheel__source": "ours"}, "wheel.recipe_key"),
        ({"wheel__recipe_key": DIGEST}, "wheel.recipe_key"),
        ({"wheel__sass": "80"}, "wheel.sass"),
        ({"wheel__sass": ["80", 90]}, "wheel.sass"),
        ({"wheel__sass": ["eighty"]}, "wheel.sass"),
        ({"wheel__sass": ["80", ""]}, "wheel.sass"),
        ({"wheel__ptx": "new"}, "wheel.ptx"),
        ({"facts__platform": "linux"}, "facts.platform"),
        ({"facts__libc": "two"}, "facts.libc"),
        ({"facts__python": "3.12"}, "facts.python"),
        ({"facts__torch": "2.8; rm"}, "facts.torch"),
        ({"facts__accelerator": "tpu"}, "facts.accelerator"),
        ({"facts__cuda": "cu12"}, "facts.cuda"),
        ({"facts__cxx11_abi": "yes"}, "facts.cxx11_abi"),
        ({"facts__gpus": "9.0"}, "facts.gpus"),
        ({"facts__gpus": ["H100"]}, "facts.gpus"),
        ({"facts__driver": "new"}, "facts.driver"),
        ({"names": "flash-attn-3"}, "names"),
        ({"names": [{"filename": NAME.filename}]}, "names"),
        ({"names": [{"filename": "../x.whl", "sha256": DIGEST}]}, "names.filename"),
        ({"names": [{"filename": NAME.filename, "sha256": "abc"}]}, "names"),
    ],
    ids=str,
)
def test_a_lock_that_was_edited_wrongly_is_refused_with_the_name_of_the_key(changes, key, tmp_path) -> None:
    path = tmp_path / "flashdepot.lock"
    path.write_text(tomli_w.dumps(edited(**changes)))
    with pytest.raises(UsageError) as caught:
        read_lock(path)
    assert key in caught.value.message
    assert "flashdepot lock --upgrade" in caught.value.hint


@pytest.mark.parametrize("text", ["schema = ", "\x00", "[wheel]\nurl = 1\nurl = 2", "# nothing"])
def test_what_is_not_a_lock_at_all_is_refused(text, tmp_path) -> None:
    path = tmp_path / "flashdepot.lock"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_lock(path)


def test_a_lock_that_is_not_there_or_far_too_large_is_named(tmp_path) -> None:
    with pytest.raises(UsageError, match="There is no lock file"):
        read_lock(tmp_path / "flashdepot.lock")
    (tmp_path / "flashdepot.lock").write_text("#" * (2 << 20))
    with pytest.raises(UsageError, match="larger than 1 MB"):
        read_lock(tmp_path / "flashdepot.lock")
    with pytest.raises(UsageError, match="is a folder"):
        read_lock(tmp_path)


def test_a_lock_over_http_is_read_when_its_bytes_are_pinned(tmp_path) -> None:
    path = tmp_path / "flashdepot.lock"
    path.write_text(tomli_w.dumps(edited(wheel__url=URL.replace("https", "http"), wheel__sha256=DIGEST)))
    assert read_lock(path).wheel.url.startswith("http://")


def test_a_write_that_fails_leaves_the_lock_that_was_there(tmp_path, monkeypatch) -> None:
    path = tmp_path / "flashdepot.lock"
    write_lock(path, LOCK)
    before = path.read_bytes()

    def no_space(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_space)
    with pytest.raises(Exception, match="is full"):
        write_lock(path, LOCK.with_digest(DIGEST, 1))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["flashdepot.lock"]
