"""Which versions of candle-flash-attn there are, what they call, and where they look for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from packaging.version import InvalidVersion, Version

from flashdepot.errors import UsageError
from flashdepot.system.toml import read_toml

_DATA = Path(__file__).with_name("candle_versions.toml")


class Delivery(str, Enum):
    """How a build of candle takes a library that is not its own."""

    FOLDER = "folder"
    CRATE = "crate"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class CandleLine:
    """Versions of candle-flash-attn, from ``first`` to ``last``, that are served in the same way."""

    first: str
    last: str
    arguments: int
    delivery: Delivery

    def has(self, version: Version) -> bool:
        """Whether a version is one of these. A pre-release of ``first`` may come from before the change, so it is not."""
        return Version(self.first) <= version and Version(version.base_version) <= Version(self.last)

    def __str__(self) -> str:
        versions = self.first if self.first == self.last else f"{self.first} to {self.last}"
        return f"{versions}: run_mha with {self.arguments} arguments, given as a {self.delivery}"


def line_of(version: str) -> CandleLine:
    """What is known of a version; :raises UsageError: with the table of those that are known."""
    try:
        asked = Version(version)
    except InvalidVersion:
        raise UsageError(
            f"'{version}' is not a version of candle-flash-attn: expected one such as 0.9.2.",
            hint="It is in Cargo.lock, or: cargo tree -i candle-flash-attn",
        ) from None
    for line in known_lines():
        if line.has(asked):
            return line
    table = "; ".join(str(line) for line in known_lines())
    raise UsageError(
        f"candle-flash-attn {version} is not known: its argument list could be another one, and a wrong list gives wrong "
        f"numbers without an error. Known are {table}.",
        hint="Name one of those with --candle-version.",
    )


@cache
def known_lines() -> tuple[CandleLine, ...]:
    """The table of ``candle_versions.toml``, oldest first."""
    return tuple(
        CandleLine(data["first"], data["last"], data["arguments"], Delivery(data["delivery"]))
        for data in read_toml(_DATA)["line"]
    )
