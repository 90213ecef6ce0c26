"""Wheels and environments that were made so that an installation, or undoing one, changes what it must not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from binary import forge
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.install.rollback import Rollback, recover
from install.conftest import Run, Venv
from install.test_install import add_official

as_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="gives files to another user: needs root")
SOMEBODY = 12345


def entry_points(*names: str) -> dict[str, bytes]:
    lines = "".join(f"{name} = flash_attn:main\n" for name in names)
    return {"flash_attn-2.8.3.dist-info/entry_points.txt": f"[console_scripts]\n{lines}".encode()}


def make_wheel(folder: Path, files: dict[str, bytes], *, works: bool) -> Path:
    folder.mkdir(exist_ok=True)
    code = {"flash_attn/__init__.py": b"__version__ = '2.8.3'\n" if works else b"1 / 0\n", "flash_attn_2_cuda.py": b""}
    return forge.wheel(folder, {**code, **files}, tag="py3-none-any")


HOSTILE = {
    "a program outside": entry_points("../../../flashdepot-attack"),
    "a program outside, in a line that looks like another's": {
        "flash_attn-2.8.3.dist-info/entry_points.txt": b"[console_scripts]\nrun = a:b\n  ../../../flashdepot-attack = a:b\n"
    },
    "a program in a folder": entry_points("sub/tool"),
    "an absolute program": entry_points("/tmp/flashdepot-attack"),  # noqa: S108
    "pip": entry_points("pip"),
    "another pip": entry_points("pip3.99"),
    "python": entry_points("python3"),
    "a script in the place of python": {"flash_attn-2.8.3.data/scripts/python": b"#!/bin/sh\n"},
    "a script in the place of activate": {"flash_attn-2.8.3.data/scripts/activate": b"#!/bin/sh\n"},
}


@pytest.mark.parametrize("works", [True, False], ids=["imports", "does not import"])
@pytest.mark.parametrize("how", HOSTILE)
def test_a_wheel_brings_no_program_that_is_not_its_own(
    command: Run,
    environment: Venv,
    tmp_path: Path,
    how: str,
    works: bool,
) -> None:
    before = environment.contents()
    done = command("--wheel", str(make_wheel(tmp_path / "wheels", HOSTILE[how], works=works)))
    assert done.code == 6, done.err
    assert "is refused: it brings" in done.err
    assert environment.contents() == before
    assert not [folder for folder in (tmp_path, *tmp_path.parents) if (folder / "flashdepot-attack").exists()]
    assert not Path("/tmp/flashdepot-attack").exists()  # noqa: S108


def owners(venv: Venv) -> dict[str, int]:
    return {path.relative_to(venv.root).as_posix(): path.lstat().st_uid for path in sorted(venv.root.rglob("*"))}


@as_root
@pytest.mark.parametrize("works", [True, False], ids=["imports", "does not import"])
def test_what_root_does_in_the_environment_of_a_user_stays_the_users(
    command: Run,
    environment: Venv,
    tmp_path: Path,
    works: bool,
) -> None:
    add_official(environment)
    subprocess.run(["chown", "--no-dereference", "--recursive", str(SOMEBODY), str(environment.root)], check=True)
    before = owners(environment), environment.contents()
    done = command("--wheel", str(make_wheel(tmp_path / "wheels", entry_points("attend"), works=works)))
    assert done.code == (0 if works else 6), done.err
    if not works:
        assert (owners(environment), environment.contents()) == before
    strangers = {name for name, uid in owners(environment).items() if uid != SOMEBODY}
    assert strangers == set()


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "venv").mkdir()
    return tmp_path / "venv"


def plant(prefix: Path, places: list[list[str]], aside: dict[str, list[str]] | None = None) -> None:
    """A journal as a killed installation leaves it, with a copy of a program."""
    folder = prefix / ".flashdepot-install"
    (folder / "copies").mkdir(parents=True)
    (folder / "copies/0").write_text("planted")
    (folder / "journal.json").write_text(json.dumps({"places": places, "aside": aside or {}}))


@pytest.mark.parametrize("number", ["", "0"], ids=["to remove", "to replace"])
@pytest.mark.parametrize("way", ["absolute", "dots", "link"])
def test_a_journal_that_was_planted_reaches_nothing_outside_the_environment(
    prefix: Path, tmp_path: Path, number: str, way: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("precious")
    (prefix / "link").symlink_to(home)
    place = {"absolute": home, "dots": prefix / "../home", "link": prefix / "link"}[way] / ".bashrc"
    plant(prefix, [[str(place), number]])
    with pytest.raises(IntegrityError, match="outside the environment"):
        recover(prefix, pytest.fail)
    assert (home / ".bashrc").read_text() == "precious"


def test_a_journal_that_was_planted_cleans_no_folder_up_and_copies_nothing_in(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/~backup").write_text("precious")
    plant(prefix, [], {str(tmp_path / "home"): []})
    with pytest.raises(IntegrityError, match="outside the environment"):
        recover(prefix, pytest.fail)
    assert (tmp_path / "home/~backup").exists()
    (tmp_path / "secret").write_text("secret")
    (prefix / ".flashdepot-install/journal.json").unlink()
    plant_copy = [[str(prefix / "readable"), "../../../secret"]]
    (prefix / ".flashdepot-install/journal.json").write_text(json.dumps({"places": plant_copy, "aside": {}}))
    with pytest.raises(IntegrityError, match="not the number of a copy"):
        recover(prefix, pytest.fail)
    assert not (prefix / "readable").exists()


@as_root
def test_a_journal_of_another_user_is_not_believed(prefix: Path) -> None:
    (prefix / "mine").write_text("precious")
    plant(prefix, [[str(prefix / "mine"), ""]])
    subprocess.run(["chown", "-R", str(SOMEBODY), str(prefix / ".flashdepot-install")], check=True)
    with pytest.raises(UsageError, match="another user's"):
        recover(prefix, pytest.fail)
    assert (prefix / "mine").read_text() == "precious"


def test_a_link_in_the_place_of_the_copies_is_not_followed(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    (prefix / ".flashdepot-install").symlink_to(tmp_path / "away")
    with pytest.raises(FlashdepotError), Rollback(prefix, pytest.fail):
        pytest.fail("it began to work")
    assert list((tmp_path / "away").iterdir()) == []


@pytest.mark.parametrize("place", ["/etc/flashdepot-attack", "../outside"])
def test_nothing_outside_the_environment_is_protected_or_put_back(prefix: Path, place: str) -> None:
    with pytest.raises(UsageError, match="outside the environment"), Rollback(prefix, pytest.fail) as rollback:
        rollback.protect([prefix / place])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads which file a descriptor is of from /proc")
def test_copies_are_on_the_disk_before_the_journal_says_so(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prefix / "package/inner").mkdir(parents=True)
    for name in ("package/a.py", "package/inner/b.py", "single.py"):
        (prefix / name).write_text(name)
    synced: list[str] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    with Rollback(prefix, pytest.fail) as rollback:
        rollback.protect([prefix / "package", prefix / "single.py"])
    journal = next(number for number, name in enumerate(synced) if name.startswith(".journal.json."))
    assert {"a.py", "b.py", "inner", "copies", "0", "1"} <= set(synced[:journal])
