"""Places that are this user's, and who may have planted something there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs
import pytest

from flashdepot.files.trust import planted, user_cache, user_config

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no such owners")
SOMEBODY = 65_000
"""A user that no system has."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.touch()
    return path


def test_what_this_user_made_is_trusted(file: Path) -> None:
    assert planted(file) == planted(file.parent) == ""


def test_what_everybody_may_write_to_is_not(file: Path) -> None:
    file.chmod(0o666)
    assert planted(file) == "everybody may write to it"


def test_what_everybody_may_exchange_is_not_but_sticky_folders_are_for_that(file: Path) -> None:
    file.parent.chmod(0o777)
    assert planted(file) == f"everybody may write to its folder, {file.parent}"
    file.parent.chmod(0o1777)
    assert planted(file) == ""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root makes files of other users")
def test_what_belongs_to_another_user_is_not(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(file, SOMEBODY, -1)
    assert planted(file) == f"it belongs to user {SOMEBODY}"
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    assert planted(file) == "", "root by way of sudo trusts the user who called it, as git does"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root makes files of other users")
def test_of_a_link_it_is_the_link_that_counts(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    os.chown(file, SOMEBODY, -1)
    assert planted(link) == ""
    os.chown(link, SOMEBODY, -1, follow_symlinks=False)
    assert planted(link) == f"it belongs to user {SOMEBODY}"


@pytest.mark.parametrize("name", ["", "relative/folder", "/elsewhere"])
@pytest.mark.parametrize("users", ["/home/somebody", "", None])
def test_a_users_folders_are_those_that_the_package_for_all_systems_gives(
    name: str, users: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
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
