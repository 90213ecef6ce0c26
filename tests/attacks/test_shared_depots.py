"""Users of one machine and one depot: what one of them plants, replaces, deletes or links harms no other."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from flashdepot.cli import app
from flashdepot.depot import Depot
from flashdepot.depot.gc import plan, run
from flashdepot.depot.layout import TRUSTED_USERS, DepotLayout, init, require_safe
from flashdepot.depot.libraries import Artifacts
from flashdepot.errors import FlashdepotError, IntegrityError, MissingToolError, UsageError
from flashdepot.files import locks
from flashdepot.files.locks import try_lock_file
from flashdepot.files.trust import user_cache
from flashdepot.process.child import Child
from support import forge
from support.depots import make_older, record_unit
from support.tools import User, contents, flashdepot_here, needs_users, posix, unchanged

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


@needs_users
@pytest.mark.parametrize("user", [BOB, MALLORY], ids=["a colleague", "somebody else"])
def test_a_private_depot_is_nobody_elses_to_write(place, user) -> None:
    root = work_of(ALICE, place) / "depot"
    store(ALICE, root, place, "one")
    done = user.python(STORE, root, work_of(user, place), "two")
    assert done.returncode != 0
    assert f"belongs to {ALICE.uid}" in done.stderr


@needs_users
@pytest.mark.parametrize("trust", ["", str(ALICE.uid)])
def test_the_depot_of_another_user_is_used_only_if_that_user_is_trusted(place, trust) -> None:
    root = work_of(ALICE, place) / "depot"
    store(ALICE, root, place, "one")
    root.parent.chmod(0o755)
    done = BOB.flashdepot("depot", "ls", "--depot", root, **{TRUSTED_USERS: trust})
    assert done.returncode == (0 if trust else 6)
    assert trust or f"export {TRUSTED_USERS}={ALICE.uid}" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("name", ["", *FOLDERS])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o3775])
def test_a_folder_that_others_may_write_into_is_refused_until_init_fixes_it(tmp_path, name, mode) -> None:
    folder = tmp_path / "depot" / name
    folder.mkdir(parents=True)
    Depot(tmp_path / "depot")
    folder.chmod(mode)
    if os.geteuid() == 0:
        os.chown(folder, -1, GROUP)
    with pytest.raises(IntegrityError, match="may be written by") as refused:
        Depot(tmp_path / "depot")
    assert f"flashdepot depot init --depot {tmp_path / 'depot'}" in refused.value.hint
    init(DepotLayout(tmp_path / "depot"))
    Depot(tmp_path / "depot")


@posix("symbolic links and permissions")
@pytest.mark.parametrize("verb", ["ls", "init"])
def test_a_depot_behind_a_link_to_a_disk_that_is_not_mounted_is_said_to_be_so(tmp_path, verb) -> None:
    (tmp_path / "depot").symlink_to(tmp_path / "scratch" / "depot")
    done = flashdepot_here("depot", verb, "--depot", str(tmp_path / "depot"))
    assert done.returncode == UsageError.exit_code
    assert f"depot is a symbolic link to {tmp_path}/scratch/depot, which is not there." in done.stderr
    assert not (tmp_path / "scratch").exists()


@posix("permissions")
def test_init_says_where_a_file_system_keeps_no_permissions(tmp_path, monkeypatch) -> None:
    (tmp_path / "depot").mkdir()
    (tmp_path / "depot").chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_arguments, **_keywords: None)
    with pytest.raises(MissingToolError, match="keeps no permissions"):
        init(DepotLayout(tmp_path / "depot"))


@needs_users
def test_members_of_a_group_write_into_one_folder_remote_whatever_their_umask(place) -> None:
    root = place / "remote"
    root.mkdir()
    os.chown(root, -1, GROUP)
    root.chmod(0o2775)
    write = """
import os, sys
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import open_store
os.umask(0o022)
open_store(RemoteSettings("team", f"file://{sys.argv[1]}")).write(*(word.encode() if word == "bytes" else word for word in sys.argv[2:]))
"""
    for user, name in ((ALICE, "blobs/ab/one"), (BOB, "blobs/ab/two"), (BOB, "blobs/ab/one")):
        done = user.python(write, root, name, "bytes")
        assert done.returncode == 0, done.stderr
    assert {path.name for path in (root / "blobs/ab").iterdir()} == {"one", "two"}
    assert MALLORY.python(write, root, "blobs/ab/three", "bytes").returncode != 0


@pytest.mark.parametrize("name", FOLDERS)
def test_no_folder_of_a_depot_is_a_link(tmp_path, name) -> None:
    victim = tmp_path / "victim"
    (victim / "work-1-abc").mkdir(parents=True)
    (victim / "precious").write_text("precious")
    folder = tmp_path / "depot" / name
    folder.parent.mkdir(parents=True)
    folder.symlink_to(victim)
    with unchanged(tmp_path):
        done = flashdepot_here("depot", "gc", "--yes", "--depot", tmp_path / "depot")
    assert (done.returncode, f"{folder} is a symbolic link" in done.stderr) == (6, True), done.stderr


def test_gc_follows_no_link_deeper_in_the_depot(tmp_path) -> None:
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
    assert run(Depot(depot.root), planned)
    assert contents(victim) == dict.fromkeys((f"{'a' * 64}.json", "b" * 64, ".x.tmp", "work-1-a"), b"precious")
    assert record.name


def test_a_log_that_is_a_link_empties_nothing(tmp_path) -> None:
    victim, log = tmp_path / "victim", tmp_path / "unit.log"
    victim.write_text("precious")
    log.symlink_to(victim)
    child = Child([sys.executable, "-c", "print('compiled')"], cwd=tmp_path, env=dict(os.environ), log=log)
    assert child.wait().status == 0
    assert victim.read_text() == "precious"
    assert log.read_text() == "compiled\n"


def test_a_lock_that_is_a_link_empties_nothing(tmp_path) -> None:
    depot = Depot(tmp_path / "depot")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (depot.root / "locks").mkdir(parents=True)
    depot.layout.lock("key").symlink_to(victim)
    with pytest.raises((FlashdepotError, OSError)), depot.lock("key"):
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["a file", "a folder under a file", "a loop"])
def test_what_cannot_be_a_depot_is_named(tmp_path, kind) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    root = tmp_path / {"a file": "file", "a folder under a file": "file/depot", "a loop": "loop/depot"}[kind]
    with pytest.raises(FlashdepotError, match="cannot be opened" if kind == "a loop" else "is a file"):
        require_safe(DepotLayout(root))


def test_a_trusted_user_that_does_not_exist_is_a_typing_error(tmp_path) -> None:
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("gives a folder to another user: needs root")
    os.chown(tmp_path, 60001, -1)
    with pytest.raises(UsageError, match="a user that does not exist"):
        require_safe(DepotLayout(tmp_path), {TRUSTED_USERS: "nobody-of-that-name"})


@pytest.mark.skipif(os.name != "posix", reason="errors of POSIX")
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.ENOSPC])
def test_an_error_of_the_disk_is_named_and_no_traceback_wherever_it_comes_from(
    tmp_path, monkeypatch, capfd, code
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/mem, which answers with an I/O error")
def test_a_file_that_cannot_be_read_ends_in_a_sentence() -> None:
    done = flashdepot_here("explain", "/proc/self/mem")
    assert (done.returncode, "Input/output error" in done.stderr) == (3, True)


def test_a_wheel_of_ones_own_is_installed_with_a_depot_that_may_not_be_written(
    command, environment, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(DepotLayout, "new_temporary", lambda _layout, purpose: pytest.fail(f"it wrote {purpose}"))
    code = {"flash_attn/__init__.py": b"__version__ = '2.8.3'\n", "flash_attn_2_cuda.py": b""}
    done = command("--wheel", str(forge.wheel(tmp_path, code, tag="py3-none-any")))
    assert done.code == 0, done.err
    assert environment.imports("flash_attn")
    assert not (tmp_path / "depot").exists()


@posix("home that the environment names")
def test_a_user_without_a_home_reads_how_to_name_one(monkeypatch, tmp_path) -> None:
    """As in a container that runs as a number: without HOME, and without a line in /etc/passwd."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "FLASHDEPOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", str)
    with pytest.raises(UsageError, match="has no home") as raised:
        user_cache()
    assert raised.value.hint.startswith("export HOME=")


@posix("folder that cannot be written by its owner")
def test_a_depot_that_cannot_be_written_is_named_and_none_of_its_locks(monkeypatch, tmp_path) -> None:
    def refuse(path: object, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(locks, "os", SimpleNamespace(**{**vars(os), "open": refuse}))
    with pytest.raises(MissingToolError) as raised:
        try_lock_file(tmp_path / "work-1.lock")
    assert raised.value.message.startswith(f"{tmp_path} cannot be")
