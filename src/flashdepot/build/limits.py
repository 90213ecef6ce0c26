"""What the user asked of a build, besides what to build."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """``memory`` in bytes, ``None``: what the machine has, less a reserve."""

    jobs: int
    memory: int | None = None
    keep_going: bool = False
