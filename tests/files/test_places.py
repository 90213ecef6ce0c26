from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from flashdepot.files.places import user_cache, user_config


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
