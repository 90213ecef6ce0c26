"""Targets: systems and CPUs that libraries run on, and how host code is compiled and linked for each.

A new system is a file here; a new CPU of one is a row.
"""

from __future__ import annotations

from flashdepot.errors import UsageError, did_you_mean
from flashdepot.model.target import Platform, Version
from flashdepot.targets.linux import Linux
from flashdepot.targets.row import Row, System
from flashdepot.targets.windows import Windows

_GLIBC = Version("2.17")

TARGETS = (
    Row(
        Platform("linux", "x86_64"),
        Linux(),
        zig="x86_64-linux-gnu.2.17",
        clang="x86_64-unknown-linux4.19.0-gnu2.17.0",
        cpu="x86-64",
        headers=("x86_64-linux-gnu", "generic-glibc", "x86-linux-any", "any-linux-any"),
        libc_floor=_GLIBC,
    ),
    Row(
        Platform("linux", "aarch64"),
        Linux(),
        zig="aarch64-linux-gnu.2.17",
        clang="aarch64-unknown-linux4.19.0-gnu2.17.0",
        cpu="generic",
        headers=("aarch64-linux-gnu", "generic-glibc", "aarch64-linux-any", "any-linux-any"),
        libc_floor=_GLIBC,
    ),
    Row(
        Platform("windows", "x86_64"),
        Windows(),
        zig="x86_64-windows-gnu",
        clang="x86_64-unknown-windows-gnu",
        cpu="x86-64",
        headers=("any-windows-any",),
    ),
)
"""Every target there is."""


def parse_target(text: str) -> Row:
    """Read ``linux-aarch64``; :raises UsageError: for one that there is not, naming those that there are."""
    for row in TARGETS:
        if str(row) == text.strip().lower():
            return row
    known = list(map(str, TARGETS))
    raise UsageError(f"'{text}' is not a target: there are {', '.join(known)}.{did_you_mean(text, known)}")


def target_of(platform: Platform) -> Row:
    """The target of a platform; raises as :func:`parse_target`."""
    return parse_target(str(platform))


__all__ = ["TARGETS", "Row", "System", "parse_target", "target_of"]
