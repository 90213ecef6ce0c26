"""Reading TOML, on Pythons with and without ``tomllib``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flashdepot.errors import UsageError

_MOST_DOTS = 1000
"""tomllib takes memory that grows with the square of the parts of a dotted key: 100,000 are 40 GB."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    :raises FileNotFoundError: when it is not there.
    :raises UsageError: when it is not TOML, with the place of the mistake.
    """
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Read the text of a TOML file; :raises UsageError: when it is not TOML, with its name and the place of the mistake."""
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415  (a depot hit without a project file reads no TOML)
    else:  # pragma: no cover  (Python 3.10)
        import tomli as tomllib  # noqa: PLC0415  # type: ignore[import-not-found,unused-ignore]

    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise UsageError(f"{name} is refused: a line has more than {_MOST_DOTS} dots.")
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:  # its own TOMLDecodeError, or that of a number of thousands of digits
        raise UsageError(f"{name} is not valid TOML: {error}.") from error
    except RecursionError as error:
        raise UsageError(f"{name} is refused: its values are nested too deeply.") from error
    return data
