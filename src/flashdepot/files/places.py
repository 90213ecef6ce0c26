"""Where a user's caches and settings lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_NAME = "flashdepot"


def user_cache() -> Path:
    """The folder of flashdepot in this user's cache."""
    if found := _by_xdg("XDG_CACHE_HOME", ".cache"):
        return found
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path(_NAME, appauthor=False)


def user_config() -> Path:
    """The folder of flashdepot in this user's configuration."""
    if found := _by_xdg("XDG_CONFIG_HOME", ".config"):
        return found
    from platformdirs import user_config_path  # noqa: PLC0415

    return user_config_path(_NAME, appauthor=False)


def _by_xdg(variable: str, default: str) -> Path | None:
    """``None`` on other systems, and where the environment does not say where the user's home is."""
    named, home = Path(os.environ.get(variable, "")), Path(os.environ.get("HOME", ""))
    if sys.platform != "linux" or not (named.is_absolute() or home.is_absolute()):
        return None
    return (named if named.is_absolute() else home / default) / _NAME
