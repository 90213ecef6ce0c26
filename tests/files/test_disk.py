"""Files written whole or not at all, and places where others may have planted something."""

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from flashdepot.depot.layout import DepotLayout
from flashdepot.errors import IntegrityError, MissingToolError, UsageError
from flashdepot.files.disk import (
    atomic_file,
    disk_errors,
    explain_disk_error,
    make_link,
    protect,
    sha256_file,
    write_atomic,
    write_named,
)
from flashdepot.files.documents import read_json, write_json
from flashdepot.files.locks import lock_file, try_lock_file
from flashdepot.files.trust import planted, user_cache, user_config
from flashdepot.files.user_files import OutputFile, folder_errors, require_folder
from support.tools import posix


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_written_with_its_folders(tmp_path):
    path = tmp_path / "new" / "folder" / "file"
    write_atomic(path, b"content")
    assert path.read_bytes() == b"content"
    assert names(path.parent) == ["file"]


def test_a_block_that_fails_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"old")

    def write_half():
        with atomic_file(path) as temporary:
            temporary.write_bytes(b"half of the n")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write_half()
    assert path.read_bytes() == b"old"
    assert names(path.parent) == ["file"]


@posix("modes of files")
def test_everyone_may_read_the_file(tmp_path):
    with atomic_file(tmp_path / "file") as temporary:
        temporary.write_bytes(b"x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import os, pathlib, sys; from flashdepot.files.disk import atomic_file\n"
        "with atomic_file(pathlib.Path(sys.argv[1])) as t: t.write_bytes(b'new'); os.kill(os.getpid(), 9)"
    )
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": source}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "is full"),
        pytest.param(errno.EDQUOT, "Your quota", marks=posix("quotas with an error of their own")),
    ],
)
def test_a_full_disk_is_named_with_its_folder_and_a_way_out(tmp_path, code, said):
    with pytest.raises(MissingToolError, match=said) as caught, disk_errors(tmp_path):
        raise OSError(code, os.strerror(code))
    assert str(tmp_path) in caught.value.message
    assert "--depot" in caught.value.hint


@posix("file systems without links and permissions")
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_permissions_is_written_to_and_one_without_links_is_named(tmp_path, code, monkeypatch):
    def lacking(*_arguments, **_keywords):
        raise OSError(code, os.strerror(code))

    for name in ("chmod", "fchmod", "symlink"):
        monkeypatch.setattr(os, name, lacking)
    write_atomic(tmp_path / "file", b"content")
    protect(tmp_path / "file")
    OutputFile.of("sub/file", b"content").put(tmp_path)
    assert (tmp_path / "file").read_bytes() == (tmp_path / "sub" / "file").read_bytes() == b"content"
    link = OutputFile("sub/lib.so", link="lib.so.1")
    with pytest.raises(MissingToolError) as caught, folder_errors(tmp_path, "--out DIR"):
        link.put(tmp_path)
    assert caught.value.message == f"{tmp_path} cannot be used: its file system has no symbolic links."
    assert caught.value.hint.endswith("name another folder: --out DIR")
    with pytest.raises(MissingToolError, match="has no symbolic links"):
        DepotLayout(tmp_path / "depot").prepare()


@posix("a system that makes links, and an error that is Windows's")
def test_what_lets_a_user_make_links_on_windows_is_said(tmp_path, monkeypatch):
    class RefusedError(OSError):
        winerror = 1314

    def refusing(*_arguments, **_keywords):
        raise RefusedError(errno.EINVAL, "A required privilege is not held by the client")

    monkeypatch.setattr(os, "symlink", refusing)
    with pytest.raises(MissingToolError, match="no symbolic links") as caught:
        make_link(tmp_path / "lib.so", "lib.so.1")
    assert "Developer Mode" in caught.value.hint


@posix("a stand-in for a drive of Windows that is not there")
def test_a_folder_on_a_drive_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "lexists", lambda _path: False)
    with pytest.raises(UsageError, match=f"{tmp_path} is nowhere: there is no /"):
        require_folder(tmp_path, "--out DIR")


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize(("file", "named"), [("file", "file"), (".lock.17.ab.tmp", "")])
def test_a_place_that_may_not_be_written_is_named(tmp_path, code, file, named):
    with pytest.raises(MissingToolError, match="written: ") as caught, disk_errors(tmp_path):
        raise OSError(code, os.strerror(code), str(tmp_path / file))
    assert caught.value.message.startswith(f"{tmp_path / named} cannot be ")
    assert str(explain_disk_error(caught.value.__cause__, None)) == caught.value.message


def test_of_a_file_that_cannot_be_moved_the_place_is_named_where_it_was_to_be(tmp_path):
    with pytest.raises(MissingToolError) as caught, disk_errors(tmp_path):
        raise OSError(
            errno.EIO, os.strerror(errno.EIO), str(tmp_path / ".stage" / "new" / "file"), None, str(tmp_path / "file")
        )
    assert caught.value.message == f"{tmp_path / 'file'} cannot be read or written: Input/output error."


def test_a_lock_whose_file_cannot_be_removed_is_free_and_no_work_has_failed(tmp_path, monkeypatch):
    def refused(*_arguments, **_keywords):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    held = try_lock_file(tmp_path / "lock")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        held.discard()
    with lock_file(tmp_path / "lock"):
        pass


def test_an_error_that_is_not_the_disks_passes_through(tmp_path):
    with pytest.raises(FileNotFoundError), disk_errors(tmp_path):
        (tmp_path / "missing").read_bytes()


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path):
    data = os.urandom(3 << 20) + b"tail"
    (tmp_path / "file").write_bytes(data)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_json_comes_back_as_it_was_and_equal_data_gives_equal_bytes(tmp_path):
    write_json(tmp_path / "a", {"b": [1, "é"], "a": None})
    write_json(tmp_path / "b", {"a": None, "b": [1, "é"]})
    assert read_json(tmp_path / "a") == {"a": None, "b": [1, "é"]}
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe"])
def test_a_damaged_json_file_is_named(tmp_path, content):
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(IntegrityError, match=r"record\.json is damaged"):
        read_json(tmp_path / "record.json")


@pytest.mark.skipif(os.name != "posix", reason="needs devices in the file system")
def test_a_device_or_a_pipe_that_was_named_gets_the_bytes_and_stays(tmp_path) -> None:
    """As root, a new file in place of /dev/null would break every other program of the machine."""
    ours, theirs = os.openpty()
    write_named(Path(os.ttyname(theirs)), b"to a device", "--out FILE")
    assert os.read(ours, 100) == b"to a device"
    assert stat.S_ISCHR(Path(os.ttyname(theirs)).stat().st_mode)
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    write_named(tmp_path / "pipe", b"to a pipe", "--out FILE")
    assert reader.communicate(timeout=30)[0] == b"to a pipe"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    for descriptor in (ours, theirs):
        os.close(descriptor)


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(tmp_path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("mine")
    write_named(tmp_path / "link", b"new", "--out FILE")
    assert ((tmp_path / "mine").read_bytes(), (tmp_path / "link").read_bytes()) == (b"mine", b"new")


owners = pytest.mark.skipif(os.name != "posix", reason="Windows has no such owners")
SOMEBODY = 65_000
"""A user that no system has."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.touch()
    return path


@owners
def test_what_this_user_made_is_trusted(file) -> None:
    assert planted(file) == planted(file.parent) == ""


@owners
def test_what_everybody_may_write_to_is_not(file) -> None:
    file.chmod(0o664)
    assert planted(file) == "", "a group is made of people who are trusted"
    file.chmod(0o666)
    assert planted(file) == "everybody may write to it"


@owners
def test_what_everybody_may_exchange_is_not_but_sticky_folders_are_for_that(file) -> None:
    file.parent.chmod(0o777)
    assert planted(file) == f"everybody may write to its folder, {file.parent}"
    file.parent.chmod(0o1777)
    assert planted(file) == ""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root makes files of other users")
@owners
def test_what_belongs_to_another_user_is_not(file, monkeypatch) -> None:
    os.chown(file, SOMEBODY, -1)
    assert planted(file) == f"it belongs to user {SOMEBODY}"
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    assert planted(file) == "", "root by way of sudo trusts the user who called it, as git does"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root makes files of other users")
@owners
def test_of_a_link_it_is_the_link_that_counts(file, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    os.chown(file, SOMEBODY, -1)
    assert planted(link) == ""
    os.chown(link, SOMEBODY, -1, follow_symlinks=False)
    assert planted(link) == f"it belongs to user {SOMEBODY}"


@pytest.mark.parametrize("name", ["", "relative/folder", "/elsewhere"])
@pytest.mark.parametrize("users", ["/home/somebody", "", None])
@owners
def test_a_users_folders_are_those_that_the_package_for_all_systems_gives(name, users, monkeypatch) -> None:
    if sys.platform != "linux":
        pytest.skip("the package itself is asked on other systems")
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, name)
    if users is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", users)
    cache, config = user_cache(), user_config()
    if name == "relative/folder":  # the specification has it ignored, and so have newer releases of the package
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("XDG_CONFIG_HOME")
    assert cache == platformdirs.user_cache_path("flashdepot", appauthor=False)
    assert config == platformdirs.user_config_path("flashdepot", appauthor=False)
    assert cache.is_absolute()
    assert (cache.parent == Path("/elsewhere")) == (name == "/elsewhere")


@pytest.mark.parametrize(
    ("number", "helps"),
    [
        (errno.EACCES, "Make it yours to write"),
        (errno.EROFS, "Mount it for writing"),
        (errno.ENOSPC, "Free space there"),
    ],
)
def test_space_is_to_be_freed_only_where_it_is_lacking(number, helps, tmp_path) -> None:
    with pytest.raises(MissingToolError) as caught, folder_errors(tmp_path, "--out DIR"):
        raise OSError(number, os.strerror(number), str(tmp_path))
    assert caught.value.hint.startswith(helps)
    assert caught.value.hint.endswith(", or name another folder: --out DIR")
