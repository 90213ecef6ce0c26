"""Reading TOML, on Pythons with and without ``tomllib``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flashdepot.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover  (Python 3.10)
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    :raises FileNotFoundError: when it is not there.
    :raises UsageError: when it is not TOML, with the place of the mistake.
    """
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    return data
