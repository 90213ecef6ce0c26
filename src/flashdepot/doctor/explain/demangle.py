"""C++ names as their source spells them."""

from __future__ import annotations

from collections.abc import Sequence

from flashdepot.errors import FlashdepotError
from flashdepot.system.process import run


def demangle(names: Sequence[str]) -> dict[str, str]:
    """Itanium C++ names and what they stand for, by ``c++filt`` of binutils; without it, each stands for itself."""
    if not names:
        return {}
    try:
        done = run(["c++filt"], stdin="\n".join(names) + "\n", timeout=10)
    except FlashdepotError:
        return {name: name for name in names}
    lines = done.stdout.splitlines()
    if done.status != 0 or len(lines) != len(names):
        return {name: name for name in names}
    return dict(zip(names, lines, strict=True))
