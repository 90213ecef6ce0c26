"""Blobs of a depot, and the locks around its work."""

import errno
import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError, MissingToolError
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import open_store
from support.depots import flip_and_keep_times, flip_bit, make_older, put_bytes, truncate
from support.tools import posix


def leftovers(depot: Depot) -> list[Path]:
    return list(depot.layout.temporary.iterdir())


def test_opening_and_asking_a_depot_that_does_not_exist_makes_nothing(depot):
    assert depot.blobs.find("0" * 64) is None
    assert list(depot.artifacts.manifests()) == []
    assert depot.actions.find("0" * 64, lambda _: None) is None
    assert not depot.root.exists()


def test_the_first_write_says_what_the_folder_is(depot):
    put_bytes(depot, b"x")
    assert "flashdepot depot" in (depot.root / "README.txt").read_text()
    assert (depot.root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_a_blob_is_named_by_its_sha256_and_nobody_may_write_to_it(depot, tmp_path):
    source = tmp_path / "x.o"
    source.write_bytes(b"object" * 400_000)
    digest = depot.blobs.put_file(source)
    blob = depot.blobs.verified_path(digest)
    assert digest == hashlib.sha256(source.read_bytes()).hexdigest()
    assert blob == depot.root / "blobs" / "sha256" / digest[:2] / digest
    assert blob.read_bytes() == source.read_bytes()
    assert blob.stat().st_mode & 0o222 == 0 or os.name == "nt", "Windows removes no file that is read-only"
    assert leftovers(depot) == []


def test_putting_the_same_bytes_again_keeps_the_file_and_marks_it_as_used(depot):
    blob = depot.blobs.verified_path(put_bytes(depot, b"same"))
    make_older(blob, hours=50)
    before = blob.stat()
    put_bytes(depot, b"same")
    assert blob.stat().st_ino == before.st_ino
    assert blob.stat().st_mtime > before.st_mtime + 49 * 3600
    assert leftovers(depot) == []


@pytest.mark.parametrize("damage", [flip_bit, truncate])
@pytest.mark.parametrize("fresh_process", [True, False])
def test_a_damaged_blob_is_moved_aside_reported_and_absent(depot, problems, damage, fresh_process):
    digest = put_bytes(depot, b"precious" * 1000)
    damage(depot.layout.blob(digest))
    asked = Depot(depot.root, problems.append) if fresh_process else depot
    assert asked.blobs.find(digest) is None
    assert not depot.layout.blob(digest).exists()
    assert len(list(depot.layout.quarantine.iterdir())) == 1
    assert len(problems) == 1
    assert digest in problems[0]
    with pytest.raises(IntegrityError, match=digest) as caught:
        asked.blobs.verified_path(digest)
    assert "flashdepot depot verify" in caught.value.hint


def test_putting_good_bytes_over_a_damaged_blob_fixes_it(depot):
    digest = put_bytes(depot, b"precious" * 1000)
    flip_bit(depot.layout.blob(digest))
    assert put_bytes(Depot(depot.root), b"precious" * 1000) == digest
    assert depot.blobs.verified_path(digest).read_bytes() == b"precious" * 1000


def test_a_blob_is_read_once_in_a_process(depot, monkeypatch):
    digests = [put_bytes(depot, str(n).encode()) for n in range(5)]
    reads: list[Path] = []

    def counting(path: Path) -> str:
        reads.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr("flashdepot.files.folders.sha256_file", counting)
    monkeypatch.setattr("flashdepot.files.folders._SETTLED", -1.0)
    asked = Depot(depot.root)
    for digest in digests * 3:
        asked.blobs.verified_path(digest)
    assert len(reads) == len(digests) * (3 if os.name == "nt" else 1), "Windows tells no time of a file's change"


def test_a_blob_that_changed_behind_its_times_is_read_again(depot, monkeypatch):
    monkeypatch.setattr("flashdepot.files.folders._SETTLED", -1.0)
    digest = put_bytes(depot, b"right")
    assert depot.blobs.find(digest)
    time.sleep(0.02)  # the kernel's clock for files ticks at most every 10 ms
    flip_and_keep_times(depot.layout.blob(digest), 1, 1)
    assert depot.blobs.find(digest) is None


def test_a_link_in_place_of_a_blob_is_not_followed(depot, problems, tmp_path):
    digest = put_bytes(depot, b"right")
    (tmp_path / "elsewhere").write_bytes(b"right")
    depot.layout.blob(digest).unlink()
    depot.layout.blob(digest).symlink_to(tmp_path / "elsewhere")
    assert depot.blobs.find(digest) is None
    assert "not a regular file" in problems[0]


def test_a_blob_is_linked_where_possible_and_copied_where_not(depot, tmp_path, monkeypatch):
    digest = put_bytes(depot, b"object")
    depot.blobs.link_or_copy(digest, tmp_path / "linked.o")
    assert (tmp_path / "linked.o").samefile(depot.layout.blob(digest))

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    depot.blobs.link_or_copy(digest, tmp_path / "copied.o")
    assert not (tmp_path / "copied.o").samefile(depot.layout.blob(digest))
    assert (tmp_path / "copied.o").read_bytes() == b"object"


def test_a_blob_that_changes_while_it_is_copied_is_refused(depot, tmp_path, monkeypatch):
    digest = put_bytes(depot, b"object")
    blob = depot.layout.blob(digest)

    def change_and_refuse(*_: object) -> None:
        flip_bit(blob)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", change_and_refuse)
    with pytest.raises(IntegrityError, match="damaged"):
        depot.blobs.link_or_copy(digest, tmp_path / "copied.o")
    assert not (tmp_path / "copied.o").exists()


def test_a_full_disk_is_named_and_leaves_nothing_behind(small_disk):
    depot = Depot(small_disk / "depot")
    kept = put_bytes(depot, b"k" * 500_000)
    with pytest.raises(MissingToolError, match="full") as caught:
        put_bytes(depot, b"x" * 4_000_000)
    assert str(depot.root) in caught.value.message
    assert "--depot" in caught.value.hint
    assert leftovers(depot) == []
    assert put_bytes(depot, b"y" * 500_000)
    assert depot.blobs.find(kept)


def test_a_disk_that_takes_only_a_part_of_a_remote_s_blob_is_full_and_the_remote_not_damaged(small_disk, tmp_path):
    (tmp_path / "blob").write_bytes(bytes(2 << 20))
    (small_disk / "other").write_bytes(bytes(300_000))  # of the last piece a part has room
    store = open_store(RemoteSettings("team", tmp_path.as_uri()))
    with pytest.raises(OSError, match="No space"):
        store.fetch("blob", small_disk / "part", 2 << 20, lambda _: None)


@pytest.mark.parametrize(
    "code",
    [
        errno.ENOSPC,
        pytest.param(errno.EDQUOT, marks=posix("quotas with an error of their own")),
        errno.EROFS,
        errno.EACCES,
    ],
)
def test_an_error_of_the_disk_while_writing_is_explained(depot, monkeypatch, code):
    put_bytes(depot, b"first")

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(MissingToolError) as caught:
        put_bytes(depot, b"second")
    assert "--depot DIR" in caught.value.hint
    assert leftovers(depot) == []


Start = Callable[..., subprocess.Popen[str]]


def wait_for_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line, "the process ended before it said anything"
    return line.strip()


def test_a_key_that_another_process_holds_is_refused_at_once_and_other_keys_are_free(depot, start):
    wait_for_line(start("hold", depot.root, "unit"))
    assert depot.try_lock("unit") is None
    other = depot.try_lock("other")
    assert other
    other.release()


def test_waiting_for_a_key_ends_when_its_holder_is_killed(depot, start):
    holder = start("hold", depot.root, "unit")
    wait_for_line(holder)
    Timer(0.3, holder.kill).start()
    with depot.lock("unit"):
        assert holder.wait() != 0
        assert depot.try_lock("unit") is None


def test_a_free_key_is_held_without_waiting_and_is_free_again_afterwards(depot):
    with depot.lock("unit"):
        assert depot.try_lock("unit") is None
    held = depot.try_lock("unit")
    assert held
    with held:
        assert depot.try_lock("unit") is None
    held.release()
    assert depot.try_lock("unit")


def test_a_lock_may_be_released_by_another_thread(depot):
    held = depot.try_lock("unit")
    assert held
    thread = threading.Thread(target=held.release)
    thread.start()
    thread.join()
    assert depot.try_lock("unit")


@posix("such file system")
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(depot, monkeypatch, code):
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(MissingToolError, match="no file locks") as caught:
        depot.try_lock("unit")
    assert "--depot DIR" in caught.value.hint


def test_a_workspace_is_there_while_it_is_open_and_gone_when_its_work_fails(depot):
    def fail_in_workspace() -> Path:
        with depot.workspace() as folder:
            assert list(folder.iterdir()) == []
            (folder / "part.o").write_bytes(b"x")
            raise KeyError(folder)

    with pytest.raises(KeyError) as caught:
        fail_in_workspace()
    assert not caught.value.args[0].exists()
    assert list(depot.layout.temporary.iterdir()) == []
