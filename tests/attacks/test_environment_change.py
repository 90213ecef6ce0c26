"""Wheels, locks and environments that were made so that an installation, or undoing one, changes what it must not."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.install.change import EnvironmentChange, recover
from flashdepot.resolve.lock import LOCK_NAME
from support import forge
from support.tools import assert_ends, flashdepot_in, posix, unchanged
from support.venvs import TAG, Venv, add_official, add_torch

as_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="gives files to another user: needs root")
SOMEBODY = 12345


def entry_points(*names: str) -> dict[str, bytes]:
    lines = "".join(f"{name} = flash_attn:main\n" for name in names)
    return {"flash_attn-2.8.3.dist-info/entry_points.txt": f"[console_scripts]\n{lines}".encode()}


def make_wheel(folder: Path, files: dict[str, bytes], *, works: bool) -> Path:
    folder.mkdir(exist_ok=True)
    code = {"flash_attn/__init__.py": b"__version__ = '2.8.3'\n" if works else b"1 / 0\n", "flash_attn_2_cuda.py": b""}
    return forge.wheel(folder, {**code, **files}, tag="py3-none-any")


def lines(*parts: bytes) -> dict[str, bytes]:
    return {"flash_attn-2.8.3.dist-info/entry_points.txt": b"".join(parts)}


HOSTILE = {
    "a program outside": entry_points("../../../flashdepot-attack"),
    "a program outside, in a line that looks like another's": lines(
        b"[console_scripts]\nrun = a:b\n  ../../../flashdepot-attack = a:b\n"
    ),
    "a program in a folder": entry_points("sub/tool"),
    "an absolute program": entry_points("/tmp/flashdepot-attack"),  # noqa: S108
    "pip": entry_points("pip"),
    "another pip": entry_points("pip3.99"),
    "python": entry_points("python3"),
    "a script in place of python": {"flash_attn-2.8.3.data/scripts/python": b"#!/bin/sh\n"},
    "a script in place of activate": {"flash_attn-2.8.3.data/scripts/activate": b"#!/bin/sh\n"},
    "a script of pip's": {"flash_attn-2.8.3.data/scripts/pip9": b"#!/bin/sh\n"},
    "a broken header": lines(b"[console_scripts]\nrun = a:b\n[foo = a:b\npip = a:b\n"),
    "only a broken header": lines(b"[console_scripts\npip = a:b\n"),
    "a file in other letters": {"flash_attn-2.8.3.DIST-INFO/ENTRY_POINTS.TXT": b"[console_scripts]\npip = a:b\n"},
    **{
        f"a header after {name}": lines(b"[console_scripts]\nrun = a:b", end, b"[other]\npip = a:b\n")
        for name, end in {
            "a return": b"\r",
            "a vertical tab": b"\v",
            "a form feed": b"\f",
            "a record separator": b"\x1e",
            "U+0085": "\x85".encode(),
            "U+2028": "\u2028".encode(),
            "U+2029": "\u2029".encode(),
        }.items()
    },
}


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
@pytest.mark.parametrize("how", HOSTILE)
def test_a_wheel_brings_no_program_that_is_not_its_own(command, environment, tmp_path, how) -> None:
    with unchanged(environment):
        done = command("--wheel", str(make_wheel(tmp_path / "wheels", HOSTILE[how], works=True)))
    assert done.code in {4, 6}, done.err
    assert "is refused: i" in done.err or "must not use the reserved name" in done.err
    assert not [folder for folder in (tmp_path, *tmp_path.parents) if (folder / "flashdepot-attack").exists()]
    assert not Path("/tmp/flashdepot-attack").exists()  # noqa: S108


def owners(venv: Venv) -> dict[str, int]:
    return {path.relative_to(venv.root).as_posix(): path.lstat().st_uid for path in sorted(venv.root.rglob("*"))}


@as_root
@pytest.mark.parametrize("works", [True, False], ids=["imports", "does not import"])
def test_what_root_does_in_the_environment_of_a_user_stays_the_users(command, environment, tmp_path, works) -> None:
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


def plant(prefix: Path, replaced: list[str], added: list[str] | None = None) -> None:
    """A journal as a killed installation leaves it, with a program that it moved aside."""
    folder = prefix / ".flashdepot-install"
    (folder / "old").mkdir(parents=True, exist_ok=True)
    (folder / "old/0").write_text("planted")
    (folder / "journal.json").write_text(json.dumps({"replaced": replaced, "added": added or []}))


@pytest.mark.parametrize("what", ["to remove", "to replace"])
@pytest.mark.parametrize("way", ["absolute", "dots", "link"])
def test_a_journal_that_was_planted_reaches_nothing_outside_the_environment(prefix, tmp_path, what, way) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("precious")
    (prefix / "link").symlink_to(home)
    place = str({"absolute": home, "dots": prefix / "../home", "link": prefix / "link"}[way] / ".bashrc")
    plant(prefix, *([[], [place]] if what == "to remove" else [[place]]))
    with pytest.raises(IntegrityError, match="outside the environment"):
        recover(prefix, pytest.fail)
    assert (home / ".bashrc").read_text() == "precious"


@as_root
def test_a_journal_of_another_user_is_not_trusted(prefix) -> None:
    (prefix / "mine").write_text("precious")
    plant(prefix, [], [str(prefix / "mine")])
    subprocess.run(["chown", "-R", str(SOMEBODY), str(prefix / ".flashdepot-install")], check=True)
    with pytest.raises(UsageError, match="another user's"):
        recover(prefix, pytest.fail)
    assert (prefix / "mine").read_text() == "precious"


def test_a_link_in_place_of_the_copies_is_not_followed(prefix, tmp_path) -> None:
    (tmp_path / "away").mkdir()
    (prefix / ".flashdepot-install").symlink_to(tmp_path / "away")
    with pytest.raises(FlashdepotError), EnvironmentChange(prefix, pytest.fail):
        pytest.fail("it began to work")
    assert list((tmp_path / "away").iterdir()) == []


@pytest.mark.parametrize("place", ["/etc/flashdepot-attack", "../outside", "."])
def test_nothing_outside_the_environment_is_replaced(prefix, place) -> None:
    with pytest.raises(UsageError, match="outside the environment"), EnvironmentChange(prefix, pytest.fail) as change:
        change.swap([prefix / place])


anywhere = pytest.mark.parametrize("installer", ["uv"], indirect=True)


def wheel(folder: Path, code: str) -> str:
    files = {"flash_attn/__init__.py": code.encode(), "flash_attn_2_cuda.py": b""}
    return str(forge.wheel(folder, files, tag=TAG))


@posix("fork")
@anywhere
def test_a_module_that_leaves_a_process_running_is_installed_at_once(command, environment, tmp_path) -> None:
    """That process holds the output open until the test lets it go, after the installation."""
    left = f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)"
    code = f"import os, time\nif os.fork() == 0:\n    {left}\n    os._exit(0)\n"
    try:
        done = command("--wheel", wheel(tmp_path, code))
        assert done.code == 0, done.err
    finally:
        (tmp_path / "go").touch()


@anywhere
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(0)", "it ended with exit code 0 and said nothing"),
        ("import os; os._exit(7)", "it ended with exit code 7 and said nothing"),
        pytest.param(
            "import os; os.kill(os.getpid(), 9)",
            "it ended with exit code -9 and said nothing",
            marks=posix("exit codes of signals"),
        ),
        ("import sys; sys.stdout.close()", "I/O operation on closed file"),
        ('print(\'{"version": "2.8.3"}\'); raise SystemExit', "it ended with exit code 0 and said nothing"),
    ],
)
def test_a_module_that_ends_the_process_without_an_answer_is_undone(command, environment, tmp_path, code, said) -> None:
    with unchanged(environment):
        done = command("--wheel", wheel(tmp_path, code))
    assert done.code == 6, done.err
    assert "does not import there: " in done.err
    assert said in done.err
    assert "Traceback" not in done.err


@anywhere
def test_a_module_that_prints_while_and_after_it_is_imported_is_installed(command, environment, tmp_path) -> None:
    code = "import atexit\nprint('{}')\natexit.register(print, '[1, 2]')\n"
    done = command("--wheel", wheel(tmp_path, code))
    assert done.code == 0, done.err


LOCK = """\
schema = 1

[wheel]
source = "{source}"
filename = "{filename}"
url = "{url}"
[facts]
"""


@pytest.mark.parametrize("source", ["official", "mjun0812", "anything"])
def test_a_lock_without_a_digest_is_not_trusted_whatever_it_calls_its_source(bare_venv, tmp_path, source) -> None:
    add_torch(bare_venv)
    before, filename = bare_venv.contents(), "flash_attn-2.8.3-py3-none-any.whl"
    text = LOCK.format(source=source, filename=filename, url=f"https://evil.example/{filename}")
    (tmp_path / LOCK_NAME).write_text(text)
    done = flashdepot_in(tmp_path, "install", "--locked", "--python", str(bare_venv.python))
    assert_ends(done, 6, f"No SHA-256 is known for {filename}")
    assert bare_venv.contents() == before
