"""Which wheel is installed: the one that was named or locked, or the one that the resolver decides for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.install.managed import OURS
from flashdepot.install.sources import WheelAddress, read_named
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.host import HostRecord
from flashdepot.model.wheel_request import BANDWIDTH
from flashdepot.resolve.library import Need, Rejected, Result, Wish, from_depot, understand
from flashdepot.resolve.times import build_seconds


@dataclass(frozen=True)
class Asked:
    """What was asked for on the command line. ``sources`` is empty where none was named."""

    wish: Wish
    sources: frozenset[str] = frozenset()
    named: str | None = None
    sha256: str | None = None

    @property
    def may_build(self) -> bool:
        """Whether the user has said that compiling is wanted."""
        return "build" in self.sources


@dataclass(frozen=True)
class OwnWheel:
    """Our wheel over a library: a stored one, or one that must be built, which is expected to take so long."""

    need: Need
    stored: Result | None
    rejected: Rejected = ()
    build_seconds: float = 0


@dataclass(frozen=True)
class Choice:
    """The wheel to install, and why it is that one."""

    wheel: WheelFile | WheelAddress | OwnWheel
    why: str

    @property
    def must_build(self) -> bool:
        """Whether a compiler would have to run."""
        return isinstance(self.wheel, OwnWheel) and self.wheel.stored is None

    @property
    def source(self) -> str:
        """Whose wheel it is."""
        return "ours" if isinstance(self.wheel, OwnWheel) else self.wheel.source

    @property
    def reference(self) -> str:
        """The wheel as an argument of other programs."""
        if isinstance(self.wheel, OwnWheel):
            return OURS
        return str(self.wheel.path.absolute()) if isinstance(self.wheel, WheelFile) else self.wheel.shown

    def to_json(self) -> dict[str, Any]:
        """What is known before anything is fetched or built."""
        wheel = self.wheel
        if isinstance(wheel, OwnWheel):
            key = wheel.stored.manifest.recipe_key if wheel.stored else None
            return {"source": self.source, "why": self.why, "must_build": self.must_build, "recipe_key": key}
        known: dict[str, Any] = {"sha256": wheel.sha256 or None, "size": wheel.size or None}
        if isinstance(wheel, WheelFile):
            return {"source": self.source, "why": self.why, "path": str(wheel.path), **known}
        return {"source": self.source, "why": self.why, "url": wheel.shown, **known}


def choose(asked: Asked, record: HostRecord, depot: Depot) -> Choice:
    """Decide which wheel to install.

    :raises UsageError: for options that contradict each other.
    """
    _require_one_way(asked)
    if asked.named is not None:
        return Choice(read_named(asked.named, asked.sha256), "it was named")
    return _own(asked, record, depot)


def _own(asked: Asked, record: HostRecord, depot: Depot) -> Choice:
    need = understand(asked.wish, record, depot)
    stored, rejected = from_depot(need, depot)
    if stored is not None:
        return Choice(OwnWheel(need, stored), "the depot has a library that serves")
    request = need.request
    seconds = build_seconds(request.selection, len(request.gpus), "shared", record.cores, record.memory, BANDWIDTH)
    return Choice(OwnWheel(need, None, rejected, seconds), "no stored library serves")


def _require_one_way(asked: Asked) -> None:
    ways = {"--wheel": asked.named is not None, "--source": bool(asked.sources)}
    given = [name for name, is_given in ways.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} say two things: give one of them.")
    if asked.sha256 is not None and asked.named is None:
        raise UsageError("--sha256 is the digest of a wheel that is named.", hint="Name it: --wheel FILE|URL")
