"""Users of one machine and one depot: what one of them plants, replaces, deletes or links harms no other."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.cli import app
from flashdepot.depot import Depot
from flashdepot.depot.access import TRUSTED_USERS, require_safe
from flashdepot.depot.gc import plan, run
from flashdepot.depot.layout import DepotLayout
from flashdepot.depot.libraries import Artifacts
from flashdepot.errors import FlashdepotError, IntegrityError, UsageError
from flashdepot.process.child import Child
from support import forge
from support.depots import make_older, record_unit
from support.tools import User, needs_users
from support.venvs import Run, Venv

GROUP = 60100
ALICE, BOB = User(60001, (GROUP,)), User(60002, (GROUP,))
"""Members of the group."""

MALLORY = User(60003)
"""Has an account on the machine, and no more."""

FOLDERS = [folder.relative_to("/").as_posix() for folder in DepotLayout(Path("/")).folders]

STORE = """
import sys
from pathlib import Path
from support import forge
from support.depots import LIBRARY_FILES, find_unit, record_unit, store_library
from flashdepot.cli import app
from flashdepot.depot import Depot
root, work, name = sys.argv[1:]
depot = Depot(Path(root), on_problem=print)
record = record_unit(depot, Path(work), name=f"unit_{name}", content=name.encode() * 1000)
manifest = store_library(depot, Path(work), name=name)
again = Depot(Path(root), on_problem=print)
assert find_unit(again, record) is not None, "the unit is lost"
assert again.load_intact(manifest.recipe_key) == manifest, "the library is lost"
folder = again.libraries.materialise(manifest)
for path, content in LIBRARY_FILES.items():
    assert (folder / path).read_bytes() == content + name.encode(), path
print(again.export(manifest, Path(work) / "out" / name))
"""
"""What a user does with a depot: keeps a unit and a library, finds both again, takes the library out."""


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user reaches, with a folder of work for each."""
    with tempfile.TemporaryDirectory(prefix="flashdepot-users-") as name:
        root = Path(name)
        root.chmod(0o755)
        for user in (ALICE, BOB, MALLORY):
            (root / str(user.uid)).mkdir(mode=0o700)
            os.chown(root / str(user.uid), user.uid, user.uid)
        yield root


def work_of(user: User, place: Path) -> Path:
    return place / str(user.uid)


def store(user: User, root: Path, place: Path, name: str) -> subprocess.CompletedProcess[str]:
    done = user.python(STORE, root, work_of(user, place), name)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def shared(place: Path) -> Path:
    """A depot that root shares with the group."""
    root = place / "depot"
    init_shared(root)
    return root


def init_shared(root: Path) -> None:
    """As ``depot init --shared`` does, with a group that the machine need not know by name."""
    import grp  # noqa: PLC0415
    from unittest import mock  # noqa: PLC0415

    from flashdepot.depot.access import init  # noqa: PLC0415

    with mock.patch.object(grp, "getgrnam", return_value=mock.Mock(gr_gid=GROUP)):
        init(DepotLayout(root), "flashdepot-test")


def attempts(user: User, root: Path) -> dict[str, str]:
    """What a user tries with every file and folder of a depot, and what the system said to each."""
    code = """
import json, os, sys
said, root = {}, sys.argv[1]
def attempt(what, act):
    try:
        act()
        said[what] = "done"
    except OSError as error:
        said[what] = error.strerror
def put(path):
    with open(path, "x") as file:
        file.write("planted")
for folder, folders, files in os.walk(root):
    for name in files:
        path = os.path.join(folder, name)
        if os.lstat(path).st_uid == os.geteuid() or folder == os.path.join(root, "locks"):
            continue
        attempt("write " + path, lambda: open(path, "r+b").close())
        attempt("delete " + path, lambda: os.unlink(path))
        attempt("replace " + path, lambda: (put(root + "/../" + str(os.geteuid()) + "/x"), os.replace(root + "/../" + str(os.geteuid()) + "/x", path)))
        try:
            os.unlink(root + "/../" + str(os.geteuid()) + "/x")
        except FileNotFoundError:
            pass
    for name in folders:
        path = os.path.join(folder, name)
        if os.lstat(path).st_uid != os.geteuid():
            attempt("rename " + path, lambda: os.rename(path, path + ".away"))
            attempt("permit " + path, lambda: os.chmod(path, 0o777))
    if sys.argv[2] == "plant":
        attempt("plant in " + folder, lambda: put(folder + "/planted"))
        attempt("link in " + folder, lambda: os.symlink("/etc", folder + "/link"))
print(json.dumps(said))
"""
    done = user.python(code, root, "plant" if user is MALLORY else "")
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    assert len(said) > 100
    return said


@needs_users
@pytest.mark.parametrize("user", [BOB, MALLORY], ids=["a member", "somebody else"])
def test_nobody_replaces_or_deletes_what_another_has_in_a_shared_depot(shared: Path, place: Path, user: User) -> None:
    store(ALICE, shared, place, "one")
    before = contents(shared)
    assert {what for what, said in attempts(user, shared).items() if said == "done"} == set()
    assert contents(shared) == before
    store(ALICE, shared, place, "one")


@needs_users
@pytest.mark.parametrize("user", [BOB, MALLORY], ids=["a member", "somebody else"])
def test_a_private_depot_is_nobody_elses_to_write(place: Path, user: User) -> None:
    root = work_of(ALICE, place) / "depot"
    store(ALICE, root, place, "one")
    done = user.python(STORE, root, work_of(user, place), "two")
    assert done.returncode != 0
    assert f"belongs to {ALICE.uid}" in done.stderr


@needs_users
def test_what_one_member_made_another_takes_and_each_goes_on(shared: Path, place: Path) -> None:
    store(ALICE, shared, place, "one")
    store(BOB, shared, place, "one")
    store(BOB, shared, place, "two")
    store(ALICE, shared, place, "two")
    keys = {manifest.recipe_key for manifest in Depot(shared).artifacts.manifests()}
    assert len(keys) == 2
    listed = BOB.flashdepot("depot", "ls", "--depot", shared, "--json")
    assert {entry["recipe_key"] for entry in json.loads(listed.stdout)} == keys, listed.stderr
    assert not [path for path in shared.rglob("*") if not path.is_symlink() and path.stat().st_mode & stat.S_IWOTH]


@needs_users
def test_somebody_else_reads_a_shared_depot_and_adds_nothing(shared: Path, place: Path) -> None:
    store(ALICE, shared, place, "one")
    before = contents(shared)
    listed = MALLORY.flashdepot("depot", "ls", "--depot", shared, "--json")
    assert len(json.loads(listed.stdout)) == 1, listed.stderr
    assert MALLORY.python(STORE, shared, work_of(MALLORY, place), "two").returncode != 0
    assert contents(shared) == before


@needs_users
def test_names_that_a_member_has_taken_stop_nobody(shared: Path, place: Path) -> None:
    """Bob knows what Alice will make, and puts rubbish, folders and links in place of all of it."""
    elsewhere = place / "other"
    init_shared(elsewhere)
    store(ALICE, elsewhere, place, "one")
    victim = work_of(ALICE, place) / "precious"
    victim.write_text("precious")
    names = [path.relative_to(elsewhere).as_posix() for path in sorted(elsewhere.rglob("*"))]
    code = """
import os, sys
root, victim, *names = sys.argv[1:]
planted = 0
for number, name in enumerate(names):
    path = os.path.join(root, name)
    if not os.path.lexists(path) and os.path.isdir(os.path.dirname(path)):
        if number % 3 == 0:
            os.symlink(victim, path)
        elif number % 3 == 1:
            os.mkdir(path)
        else:
            open(path, "w").write("rubbish")
        planted += 1
print(planted)
"""
    planted = BOB.python(code, shared, victim, *names)
    assert int(planted.stdout) > 5, planted.stderr
    store(ALICE, shared, place, "one")
    assert victim.read_text() == "precious"
    store(ALICE, shared, place, "one")


@needs_users
def test_gc_of_a_member_frees_what_is_the_members_alone(shared: Path, place: Path) -> None:
    store(ALICE, shared, place, "one")
    store(BOB, shared, place, "two")
    for path in sorted(shared.rglob("*"), reverse=True):
        make_older(path, hours=24 * 90)
    for manifest in (shared / "artifacts").iterdir():
        manifest.unlink()
    owners = {path: path.lstat().st_uid for path in (shared / "blobs").rglob("*") if path.is_file()}
    done = BOB.flashdepot("depot", "gc", "--yes", "--depot", shared)
    assert done.returncode == 0, done.stderr
    left = {path for path in owners if path.exists()}
    assert left == {path for path, uid in owners.items() if uid != BOB.uid}
    assert ALICE.flashdepot("depot", "gc", "--yes", "--depot", shared).returncode == 0
    assert not [path for path in owners if path.exists()]


@needs_users
@pytest.mark.parametrize("trust", ["", str(ALICE.uid)])
def test_the_depot_of_another_user_is_used_only_if_that_user_is_trusted(place: Path, trust: str) -> None:
    root = work_of(ALICE, place) / "depot"
    store(ALICE, root, place, "one")
    root.parent.chmod(0o755)
    done = BOB.flashdepot("depot", "ls", "--depot", root, **{TRUSTED_USERS: trust})
    assert done.returncode == (0 if trust else 6)
    assert trust or f"export {TRUSTED_USERS}={ALICE.uid}" in done.stderr


@needs_users
def test_a_group_that_another_user_chose_is_not_enough(place: Path) -> None:
    """Mallory shares a depot with a group that Bob is in, and hopes that Bob takes libraries from it."""
    root = place / "bait"
    init_shared(root)
    for path in (root, *root.rglob("*")):
        os.chown(path, MALLORY.uid, -1, follow_symlinks=False)
    done = BOB.flashdepot("depot", "ls", "--depot", root)
    assert (done.returncode, f"belongs to {MALLORY.uid}" in done.stderr) == (6, True)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("name", ["", *FOLDERS])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o3775])
def test_a_folder_that_others_may_write_into_is_refused(tmp_path: Path, name: str, mode: int) -> None:
    folder = tmp_path / "depot" / name
    folder.mkdir(parents=True)
    Depot(tmp_path / "depot")
    folder.chmod(mode)
    if os.geteuid() == 0:
        os.chown(folder, -1, GROUP)
    with pytest.raises(IntegrityError, match="may be written by"):
        Depot(tmp_path / "depot")


@pytest.mark.parametrize("name", FOLDERS)
def test_no_folder_of_a_depot_is_a_link(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    (victim / "work-1-abc").mkdir(parents=True)
    (victim / "precious").write_text("precious")
    folder = tmp_path / "depot" / name
    folder.parent.mkdir(parents=True)
    folder.symlink_to(victim)
    before = contents(tmp_path)
    command = [sys.executable, "-m", "flashdepot", "depot", "gc", "--yes", "--depot", str(tmp_path / "depot")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, f"{folder} is a symbolic link" in done.stderr) == (6, True), done.stderr
    assert contents(tmp_path) == before


def test_gc_follows_no_link_that_lies_deeper(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "depot")
    record = record_unit(depot, tmp_path / "work")
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in (f"{'a' * 64}.json", "b" * 64, ".x.tmp", "work-1-a"):
        (victim / name).write_text("precious")
    for folder in ("actions", "intents", "blobs/sha256"):
        (depot.root / folder / "zz").symlink_to(victim)
    for folder in ("tmp", "libraries", "toolchains", "upstreams", "downloads", "logs", "quarantine", "locks"):
        (depot.root / folder).mkdir(exist_ok=True)
        for name in ("work-1-a", "work-x", "old.lock", "old"):
            (depot.root / folder / name).symlink_to(victim)
    for path in [*sorted(depot.root.rglob("*"), reverse=True), victim, *victim.iterdir()]:
        make_older(path, hours=24 * 90)
    planned = plan(Depot(depot.root))
    assert run(Depot(depot.root), planned).removals
    assert contents(victim) == dict.fromkeys((f"{'a' * 64}.json", "b" * 64, ".x.tmp", "work-1-a"), b"precious")
    assert record.name


def test_a_log_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    victim, log = tmp_path / "victim", tmp_path / "unit.log"
    victim.write_text("precious")
    log.symlink_to(victim)
    child = Child([sys.executable, "-c", "print('compiled')"], cwd=tmp_path, env=dict(os.environ), log=log)
    assert child.wait().status == 0
    assert victim.read_text() == "precious"
    assert log.read_text() == "compiled\n"


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "depot")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (depot.root / "locks").mkdir(parents=True)
    depot.layout.lock("key").symlink_to(victim)
    with pytest.raises((FlashdepotError, OSError)), depot.lock("key"):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["a file", "a folder under a file", "a loop"])
def test_what_can_be_no_depot_is_told(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    root = tmp_path / {"a file": "file", "a folder under a file": "file/depot", "a loop": "loop/depot"}[kind]
    with pytest.raises(FlashdepotError, match="cannot be opened" if kind == "a loop" else "is a file"):
        require_safe(DepotLayout(root))


def test_a_trusted_user_that_does_not_exist_is_a_typing_error(tmp_path: Path) -> None:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("gives a folder to another user: needs root")
    os.chown(tmp_path, 60001, -1)
    with pytest.raises(UsageError, match="no such user"):
        require_safe(DepotLayout(tmp_path), {TRUSTED_USERS: "nobody-of-that-name"})


def test_a_folder_that_is_shared_is_made_private_again(tmp_path: Path) -> None:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("gives a folder to a group: needs root")
    from flashdepot.depot.access import init  # noqa: PLC0415

    init_shared(tmp_path / "depot")
    init(DepotLayout(tmp_path / "depot"), None)
    assert not [p for p in (tmp_path / "depot").rglob("*") if p.stat().st_mode & 0o6022]
    Depot(tmp_path / "depot")


@pytest.mark.skipif(os.name != "posix", reason="errors of POSIX")
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.ENOSPC])
def test_an_error_of_the_disk_is_told_and_no_traceback_wherever_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    def fail(_artifacts: Artifacts) -> list[object]:
        raise OSError(code, os.strerror(code), str(tmp_path / "depot"))

    monkeypatch.setattr(Artifacts, "by_last_use", fail)
    monkeypatch.setattr(sys, "argv", ["flashdepot", "depot", "ls", "--depot", str(tmp_path / "depot")])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert app.run() == 3
    said = capfd.readouterr().err
    assert str(tmp_path / "depot") in said
    assert "Traceback" not in said
    assert "Internal error" not in said


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="reads /proc/self/mem, which answers with an I/O error")
def test_a_file_that_cannot_be_read_ends_in_a_sentence() -> None:
    command = [sys.executable, "-m", "flashdepot", "explain", "/proc/self/mem"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "Input/output error" in done.stderr) == (3, True)
    assert "Traceback" not in done.stderr
    assert "Internal error" not in done.stderr


def test_a_wheel_of_ones_own_is_installed_beside_a_depot_that_may_not_be_written(
    command: Run, environment: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DepotLayout, "new_temporary", lambda _layout, purpose: pytest.fail(f"it wrote {purpose}"))
    code = {"flash_attn/__init__.py": b"__version__ = '2.8.3'\n", "flash_attn_2_cuda.py": b""}
    done = command("--wheel", str(forge.wheel(tmp_path, code, tag="py3-none-any")))
    assert done.code == 0, done.err
    assert environment.imports("flash_attn")
    assert not (tmp_path / "depot").exists()
